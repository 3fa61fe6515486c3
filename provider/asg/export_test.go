package asg

// What the tests outside the package look into.
var (
	UserData = userData
	Quote    = quote
	Stub     = stub
)
