package asg

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// statement is one permission of an IAM policy.
type statement struct {
	id        string
	actions   []string
	resources []pulumi.StringInput
	// equals are condition keys and the value each must have.
	equals map[string]pulumi.StringInput
}

// anyResource is for actions that IAM cannot limit to a resource.
var anyResource = []pulumi.StringInput{pulumi.String("*")}

// policy renders a policy that allows what the statements say.
func policy(statements ...statement) pulumi.StringOutput {
	list := pulumi.Array{}
	for _, s := range statements {
		entry := pulumi.Map{
			"Sid":      pulumi.String(s.id),
			"Effect":   pulumi.String("Allow"),
			"Action":   pulumi.ToStringArray(s.actions),
			"Resource": pulumi.StringArray(s.resources),
		}
		if s.equals != nil {
			entry["Condition"] = pulumi.Map{"StringEquals": pulumi.StringMap(s.equals)}
		}
		list = append(list, entry)
	}
	return pulumi.JSONMarshal(pulumi.Map{"Version": pulumi.String("2012-10-17"), "Statement": list})
}

// trust renders the policy by which a service may assume a role.
func trust(service pulumi.StringInput) pulumi.StringOutput {
	return pulumi.JSONMarshal(pulumi.Map{
		"Version": pulumi.String("2012-10-17"),
		"Statement": pulumi.Array{pulumi.Map{
			"Effect":    pulumi.String("Allow"),
			"Action":    pulumi.String("sts:AssumeRole"),
			"Principal": pulumi.Map{"Service": service},
		}},
	})
}

// resourcePolicy renders a resource's own policy, by which a service may do
// something to it for another resource.
func resourcePolicy(action string, on pulumi.StringInput, service string, source pulumi.StringInput) pulumi.StringOutput {
	return pulumi.JSONMarshal(pulumi.Map{
		"Version": pulumi.String("2012-10-17"),
		"Statement": pulumi.Array{pulumi.Map{
			"Effect":    pulumi.String("Allow"),
			"Action":    pulumi.String(action),
			"Resource":  on,
			"Principal": pulumi.Map{"Service": pulumi.String(service)},
			"Condition": pulumi.Map{"ArnEquals": pulumi.Map{"aws:SourceArn": source}},
		}},
	})
}
