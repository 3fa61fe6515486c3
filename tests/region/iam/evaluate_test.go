package iam_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
)

const (
	role    = "node"
	session = "i-0123456789abcdef0"
	volume  = "arn:aws:ec2:eu-west-1:123456789012:volume/vol-1"
)

var principal = api.Principal{
	ARN: "arn:aws:sts::123456789012:assumed-role/node/" + session, Role: role, Session: session,
}

// newDoor is an account with one role that has one policy.
func newDoor(t *testing.T, policy string) *fake.Door {
	t.Helper()
	door := fake.NewDoor(iam.New(fake.Account, fake.Region))
	if err := fake.PutRole(t.Context(), door, role, "ec2.amazonaws.com", policy); err != nil {
		t.Fatal(err)
	}
	return door
}

func policy(statements ...string) string {
	return `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
}

func TestEvaluation(t *testing.T) {
	t.Parallel()
	const attach = "ec2:AttachVolume"
	condition := func(block string) string {
		return `{"Effect":"Allow","Action":"ec2:AttachVolume","Resource":"*","Condition":` + block + `}`
	}
	tests := map[string]struct {
		policy  string
		access  api.Access
		allowed bool
	}{
		"nothing allows it": {policy(`{"Effect":"Allow","Action":"ec2:DetachVolume","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, false},
		"allowed":           {policy(`{"Effect":"Allow","Action":"ec2:AttachVolume","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, true},
		"actions do not differ by case": {
			policy(`{"Effect":"Allow","Action":"EC2:attachvolume","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, true,
		},
		"action with wildcards": {policy(`{"Effect":"Allow","Action":["ec2:A*V?lume"],"Resource":"*"}`), api.Access{Action: attach, Resource: volume}, true},
		"every action":          {policy(`{"Effect":"Allow","Action":"*","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, true},
		"another service's":     {policy(`{"Effect":"Allow","Action":"ecs:*","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, false},
		"not action":            {policy(`{"Effect":"Allow","NotAction":"iam:*","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, true},
		"not this action":       {policy(`{"Effect":"Allow","NotAction":"ec2:*","Resource":"*"}`), api.Access{Action: attach, Resource: volume}, false},
		"an explicit deny wins": {
			policy(`{"Effect":"Allow","Action":"*","Resource":"*"}`, `{"Effect":"Deny","Action":"ec2:Attach*","Resource":"*"}`),
			api.Access{Action: attach, Resource: volume}, false,
		},
		"a deny of something else": {
			policy(`{"Effect":"Allow","Action":"*","Resource":"*"}`, `{"Effect":"Deny","Action":"*","Resource":"arn:aws:ec2:*:*:instance/*"}`),
			api.Access{Action: attach, Resource: volume}, true,
		},
		"this resource":    {policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"` + volume + `"}`), api.Access{Action: attach, Resource: volume}, true},
		"another resource": {policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"` + volume + `2"}`), api.Access{Action: attach, Resource: volume}, false},
		"resources differ by case": {
			policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"` + strings.ToUpper(volume) + `"}`), api.Access{Action: attach, Resource: volume}, false,
		},
		"resource with wildcards": {
			policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:123456789012:volume/*"}`), api.Access{Action: attach, Resource: volume}, true,
		},
		"a star takes nothing, too": {
			policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"` + volume + `*"}`), api.Access{Action: attach, Resource: volume}, true,
		},
		"not resource":      {policy(`{"Effect":"Allow","Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:instance/*"}`), api.Access{Action: attach, Resource: volume}, true},
		"not this resource": {policy(`{"Effect":"Allow","Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:volume/*"}`), api.Access{Action: attach, Resource: volume}, false},
		"resource by variable": {
			policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:${aws:PrincipalAccount}:volume/*"}`),
			api.Access{Action: attach, Resource: volume}, true,
		},
		"another resource than the variable's": {
			policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:${aws:PrincipalAccount}:volume/*"}`),
			api.Access{Action: attach, Resource: "arn:aws:ec2:eu-west-1:999999999999:volume/vol-1"}, false,
		},
		"a variable that is not there": {policy(`{"Effect":"Allow","Action":"ec2:*","Resource":"arn:aws:ec2:*:*:volume/${aws:PrincipalTag/x}*"}`),
			api.Access{Action: attach, Resource: volume}, false},
		"an escaped star": {
			policy(condition(`{"StringLike":{"ec2:x":"a${*}b"}}`)), with(attach, "ec2:x", "a*b"), true,
		},
		"an escaped star is no wildcard": {
			policy(condition(`{"StringLike":{"ec2:x":"a${*}b"}}`)), with(attach, "ec2:x", "axb"), false,
		},
		"a wildcard in a variable is none": {
			policy(condition(`{"StringLike":{"ec2:x":"${ec2:y}"}}`)),
			api.Access{Action: attach, Resource: volume, Context: map[string]string{"ec2:x": "anything", "ec2:y": "*"}}, false,
		},

		"StringEquals":               {policy(condition(`{"StringEquals":{"ec2:ResourceTag/ClusterName":"demo"}}`)), with(attach, "ec2:ResourceTag/ClusterName", "demo"), true},
		"keys do not differ by case": {policy(condition(`{"StringEquals":{"EC2:resourcetag/clustername":"demo"}}`)), with(attach, "ec2:ResourceTag/ClusterName", "demo"), true},
		"StringEquals, other value":  {policy(condition(`{"StringEquals":{"ec2:ResourceTag/ClusterName":"demo"}}`)), with(attach, "ec2:ResourceTag/ClusterName", "Demo"), false},
		"StringEquals, no key":       {policy(condition(`{"StringEquals":{"ec2:ResourceTag/ClusterName":"demo"}}`)), api.Access{Action: attach, Resource: volume}, false},
		"StringEquals, one of two":   {policy(condition(`{"StringEquals":{"ec2:x":["a","b"]}}`)), with(attach, "ec2:x", "b"), true},
		"StringEquals, no wildcard":  {policy(condition(`{"StringEquals":{"ec2:x":"a*"}}`)), with(attach, "ec2:x", "ab"), false},
		"both keys":                  {policy(condition(`{"StringEquals":{"ec2:x":"a","ec2:y":"b"}}`)), with(attach, "ec2:x", "a"), false},
		"both operators": {
			policy(condition(`{"StringEquals":{"ec2:x":"a"},"StringNotEquals":{"ec2:x":"a"}}`)), with(attach, "ec2:x", "a"), false,
		},
		"StringEqualsIfExists, no key":    {policy(condition(`{"StringEqualsIfExists":{"ec2:x":"a"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"StringEqualsIfExists, other":     {policy(condition(`{"StringEqualsIfExists":{"ec2:x":"a"}}`)), with(attach, "ec2:x", "b"), false},
		"StringNotEquals":                 {policy(condition(`{"StringNotEquals":{"ec2:x":["a","b"]}}`)), with(attach, "ec2:x", "c"), true},
		"StringNotEquals, one of two":     {policy(condition(`{"StringNotEquals":{"ec2:x":["a","b"]}}`)), with(attach, "ec2:x", "b"), false},
		"StringNotEquals, no key":         {policy(condition(`{"StringNotEquals":{"ec2:x":"a"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"StringEqualsIgnoreCase":          {policy(condition(`{"StringEqualsIgnoreCase":{"ec2:x":"A"}}`)), with(attach, "ec2:x", "a"), true},
		"StringLike":                      {policy(condition(`{"StringLike":{"ec2:x":"d?m*"}}`)), with(attach, "ec2:x", "demo"), true},
		"StringNotLike":                   {policy(condition(`{"StringNotLike":{"ec2:x":"d?m*"}}`)), with(attach, "ec2:x", "demo"), false},
		"ArnLike":                         {policy(condition(`{"ArnLike":{"ec2:InstanceProfile":"arn:aws:iam::*:instance-profile/demo-*"}}`)), with(attach, "ec2:InstanceProfile", "arn:aws:iam::1:instance-profile/demo-x"), true},
		"ArnEquals has wildcards, too":    {policy(condition(`{"ArnEquals":{"ec2:x":"arn:aws:ec2:*:1:instance/*"}}`)), with(attach, "ec2:x", "arn:aws:ec2:eu:1:instance/i"), true},
		"a star stays between two colons": {policy(condition(`{"ArnLike":{"ec2:x":"arn:aws:ec2:*:instance/i"}}`)), with(attach, "ec2:x", "arn:aws:ec2:eu:1:instance/i"), false},
		"ArnNotEquals":                    {policy(condition(`{"ArnNotEquals":{"ec2:x":"arn:aws:ec2:eu:1:instance/i"}}`)), with(attach, "ec2:x", "arn:aws:ec2:eu:1:instance/j"), true},
		"Null, absent":                    {policy(condition(`{"Null":{"ec2:x":"true"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"Null, present":                   {policy(condition(`{"Null":{"ec2:x":"true"}}`)), with(attach, "ec2:x", "a"), false},
		"not Null, present":               {policy(condition(`{"Null":{"ec2:x":false}}`)), with(attach, "ec2:x", "a"), true},
		"Bool":                            {policy(condition(`{"Bool":{"ec2:Encrypted":true}}`)), with(attach, "ec2:Encrypted", "true"), true},
		"Bool, other":                     {policy(condition(`{"Bool":{"ec2:Encrypted":"true"}}`)), with(attach, "ec2:Encrypted", "false"), false},
		"NumericLessThanEquals":           {policy(condition(`{"NumericLessThanEquals":{"ec2:VolumeSize":10}}`)), with(attach, "ec2:VolumeSize", "9"), true},
		"NumericGreaterThan":              {policy(condition(`{"NumericGreaterThan":{"ec2:VolumeSize":"10"}}`)), with(attach, "ec2:VolumeSize", "9"), false},
		"ForAllValues, no key":            {policy(condition(`{"ForAllValues:StringEquals":{"ec2:x":"a"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"ForAllValues, other":             {policy(condition(`{"ForAllValues:StringEquals":{"ec2:x":"a"}}`)), with(attach, "ec2:x", "b"), false},
		"ForAnyValue, no key":             {policy(condition(`{"ForAnyValue:StringEquals":{"ec2:x":"a"}}`)), api.Access{Action: attach, Resource: volume}, false},
		"ForAnyValue, one of two":         {policy(condition(`{"ForAnyValue:StringEquals":{"ec2:x":["a","b"]}}`)), with(attach, "ec2:x", "b"), true},
		"the caller's Region":             {policy(condition(`{"StringEquals":{"aws:RequestedRegion":"eu-west-1"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"the calling instance":            {policy(condition(`{"ArnLike":{"ec2:SourceInstanceARN":"arn:aws:ec2:*:*:instance/` + session + `"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"the caller's role":               {policy(condition(`{"ArnEquals":{"aws:PrincipalArn":"arn:aws:iam::123456789012:role/node"}}`)), api.Access{Action: attach, Resource: volume}, true},
		"the caller's own session":        {policy(condition(`{"StringLike":{"aws:userid":"AROA*:` + session + `"}}`)), api.Access{Action: attach, Resource: volume}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			door := newDoor(t, test.policy)
			err := door.IAM.Authorize(principal, test.access)
			if got := err == nil; got != test.allowed {
				t.Errorf("got allowed: %v (%v), want %v, by %s", got, err, test.allowed, test.policy)
			}
		})
	}
}

func with(action, key, value string) api.Access {
	return api.Access{Action: action, Resource: volume, Context: map[string]string{key: value}}
}

func TestTheAdministratorMayDoAll(t *testing.T) {
	t.Parallel()
	service := iam.New(fake.Account, fake.Region)
	administrator, ok := service.Identify(iam.AdministratorAccessKeyID)
	if !ok || administrator.ARN != "arn:aws:iam::123456789012:user/administrator" {
		t.Fatalf("got %+v, %v", administrator, ok)
	}
	if err := service.Authorize(administrator, api.Access{Action: "iam:CreateRole", Resource: "*"}); err != nil {
		t.Error(err)
	}
}

func TestRefusalsSpeakTheServicesLanguage(t *testing.T) {
	t.Parallel()
	door := newDoor(t, policy(`{"Effect":"Deny","Action":"dynamodb:PutItem","Resource":"*"}`))
	implicit := func(action string) string {
		return "User: " + principal.ARN + " is not authorized to perform: " + action + " on resource: " + volume +
			" because no identity-based policy allows the " + action + " action"
	}
	for action, want := range map[string]api.Error{
		"ec2:AttachVolume":              {Status: 403, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation. " + implicit("ec2:AttachVolume")},
		"autoscaling:SetInstanceHealth": {Status: 403, Code: "AccessDenied", Message: implicit("autoscaling:SetInstanceHealth")},
		"s3:GetObject":                  {Status: 403, Code: "AccessDenied", Message: implicit("s3:GetObject")},
		"ssm:SendCommand":               {Status: 403, Code: "AccessDeniedException", Message: implicit("ssm:SendCommand")},
		"dynamodb:PutItem": {Status: 403, Code: "AccessDeniedException", Message: "User: " + principal.ARN +
			" is not authorized to perform: dynamodb:PutItem on resource: " + volume + " because an explicit deny in an identity-based policy"},
	} {
		var got *api.Error
		if !errors.As(door.IAM.Authorize(principal, api.Access{Action: action, Resource: volume}), &got) {
			t.Errorf("%s: was allowed", action)
			continue
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
	}
	refusals := door.IAM.Refusals()
	if len(refusals) != 5 || refusals[0].Principal != principal {
		t.Errorf("got refusals %+v, want the five above", refusals)
	}
}

func TestGrantsAreCounted(t *testing.T) {
	t.Parallel()
	door := newDoor(t, policy(
		`{"Sid":"Volumes","Effect":"Allow","Action":["ec2:AttachVolume","ec2:DetachVolume"],"Resource":"*"}`,
		`{"Effect":"Allow","Action":"ssm:*","Resource":"*"}`,
	))
	for _, action := range []string{"ec2:AttachVolume", "ec2:AttachVolume", "ssm:SendCommand", "s3:GetObject"} {
		_ = door.IAM.Authorize(principal, api.Access{Action: action, Resource: volume}) // the last one is refused
	}
	want := []iam.Grant{
		{Role: role, Policy: "policy", Statement: "1", Action: "ssm:*", Uses: 1},
		{Role: role, Policy: "policy", Statement: "Volumes", Action: "ec2:AttachVolume", Uses: 2},
		{Role: role, Policy: "policy", Statement: "Volumes", Action: "ec2:DetachVolume"},
	}
	if diff := cmp.Diff(want, door.IAM.Grants()); diff != "" {
		t.Errorf("got grants (-want +got):\n%s", diff)
	}
	client := sdk.NewFromConfig(door.Administrator())
	if _, err := client.DeleteRolePolicy(t.Context(), &sdk.DeleteRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String("policy")}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, door.IAM.Grants()); diff != "" {
		t.Errorf("grants are forgotten with the policy (-want +got):\n%s", diff)
	}
	if err := door.IAM.Authorize(principal, api.Access{Action: "ec2:AttachVolume", Resource: volume}); err == nil {
		t.Error("a deleted policy still allows")
	}
}

func TestManagedPolicies(t *testing.T) {
	t.Parallel()
	for arn, actions := range map[string][]string{
		"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore":             {"ssm:UpdateInstanceInformation", "ssmmessages:OpenDataChannel", "ec2messages:GetMessages"},
		"arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole": {"logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"},
	} {
		door := newDoor(t, policy(`{"Effect":"Allow","Action":"sts:GetCallerIdentity","Resource":"*"}`))
		client := sdk.NewFromConfig(door.Administrator())
		if _, err := client.AttachRolePolicy(t.Context(), &sdk.AttachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String(arn)}); err != nil {
			t.Fatal(err)
		}
		for _, action := range actions {
			if err := door.IAM.Authorize(principal, api.Access{Action: action, Resource: "*"}); err != nil {
				t.Errorf("%s: %v", arn, err)
			}
		}
		if err := door.IAM.Authorize(principal, api.Access{Action: "ssm:SendCommand", Resource: "*"}); err == nil {
			t.Errorf("%s allows ssm:SendCommand", arn)
		}
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	t.Parallel()
	allow := func(rest string) string { return policy(`{"Effect":"Allow",` + rest + `}`) }
	long := make([]string, 60)
	for i := range long {
		long[i] = fmt.Sprintf(`{"Effect":"Allow","Action":"ec2:AttachVolume","Resource":"arn:aws:ec2:eu-west-1:123456789012:volume/vol-%0170d"}`, i)
	}
	for name, test := range map[string]struct{ policy, code string }{
		"empty":                   {" ", "MalformedPolicyDocument"},
		"no JSON":                 {"{", "MalformedPolicyDocument"},
		"text behind":             {allow(`"Action":"ec2:*","Resource":"*"`) + "x", "MalformedPolicyDocument"},
		"unknown version":         {`{"Version":"2026-01-01","Statement":[]}`, "MalformedPolicyDocument"},
		"no statement":            {`{"Version":"2012-10-17","Statement":[]}`, "MalformedPolicyDocument"},
		"unknown element":         {allow(`"Action":"ec2:*","Resource":"*","When":"now"`), "MalformedPolicyDocument"},
		"no effect":               {policy(`{"Action":"ec2:*","Resource":"*"}`), "MalformedPolicyDocument"},
		"no action":               {allow(`"Resource":"*"`), "MalformedPolicyDocument"},
		"action and not action":   {allow(`"Action":"ec2:*","NotAction":"ec2:*","Resource":"*"`), "MalformedPolicyDocument"},
		"action without vendor":   {allow(`"Action":"AttachVolume","Resource":"*"`), "MalformedPolicyDocument"},
		"no resource":             {allow(`"Action":"ec2:*"`), "MalformedPolicyDocument"},
		"resource that is no ARN": {allow(`"Action":"ec2:*","Resource":"vol-1"`), "MalformedPolicyDocument"},
		"principal":               {allow(`"Action":"ec2:*","Resource":"*","Principal":"*"`), "MalformedPolicyDocument"},
		"unknown operator":        {allow(`"Action":"ec2:*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`), "MalformedPolicyDocument"},
		"Null of something":       {allow(`"Action":"ec2:*","Resource":"*","Condition":{"Null":{"ec2:x":"maybe"}}`), "MalformedPolicyDocument"},
		"statement ID twice":      {policy(`{"Sid":"A","Effect":"Allow","Action":"ec2:*","Resource":"*"}`, `{"Sid":"A","Effect":"Allow","Action":"s3:*","Resource":"*"}`), "MalformedPolicyDocument"},
		"statement ID with space": {policy(`{"Sid":"A B","Effect":"Allow","Action":"ec2:*","Resource":"*"}`), "MalformedPolicyDocument"},
		"too long":                {policy(long...), "LimitExceeded"},
	} {
		door := newDoor(t, allow(`"Action":"sts:*","Resource":"*"`))
		client := sdk.NewFromConfig(door.Administrator())
		_, err := client.PutRolePolicy(t.Context(), &sdk.PutRolePolicyInput{
			RoleName: aws.String(role), PolicyName: aws.String("other"), PolicyDocument: aws.String(test.policy),
		})
		wantCode(t, name, err, test.code)
	}
}
