package iam_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	stssdk "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/etcfs/pulumi-etcfs/tests/region/fake"
	"github.com/etcfs/pulumi-etcfs/tests/region/iam"
	"github.com/etcfs/pulumi-etcfs/tests/region/sts"
)

const trust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"Service":"ec2.amazonaws.com"}}]}`

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) || e.ErrorCode() != code {
		t.Errorf("%s: got error %v, want %s", what, err, code)
	}
}

func TestRoleLifecycle(t *testing.T) {
	t.Parallel()
	door := fake.NewDoor(iam.New(fake.Account, fake.Region))
	client := sdk.NewFromConfig(door.Administrator())
	ctx := t.Context()
	create := &sdk.CreateRoleInput{
		RoleName: aws.String("demo-node"), Path: aws.String("/etcfs/"), AssumeRolePolicyDocument: aws.String(trust), Description: aws.String("a node"),
		Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}},
	}
	made, err := client.CreateRole(ctx, create)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *made.Role.Arn, "arn:aws:iam::123456789012:role/etcfs/demo-node"; got != want {
		t.Errorf("got ARN %s, want %s", got, want)
	}
	create.RoleName = aws.String("DEMO-NODE")
	_, err = client.CreateRole(ctx, create)
	wantCode(t, "the same name in other letters", err, "EntityAlreadyExists")

	if _, err := client.TagRole(ctx, &sdk.TagRoleInput{RoleName: aws.String("demo-node"), Tags: []types.Tag{
		{Key: aws.String("ClusterName"), Value: aws.String("other")}, {Key: aws.String("Owner"), Value: aws.String("me")},
	}}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		code string
		tags []types.Tag
	}{
		"a key of other characters":   {"ValidationError", []types.Tag{{Key: aws.String("a!"), Value: aws.String("x")}}},
		"a value of other characters": {"ValidationError", []types.Tag{{Key: aws.String("a"), Value: aws.String("<x>")}}},
		"keys that differ by case":    {"InvalidInput", []types.Tag{{Key: aws.String("a"), Value: aws.String("x")}, {Key: aws.String("A"), Value: aws.String("x")}}},
	} {
		_, err := client.TagRole(ctx, &sdk.TagRoleInput{RoleName: aws.String("demo-node"), Tags: test.tags})
		wantCode(t, name, err, test.code)
		_, err = client.CreateRole(ctx, &sdk.CreateRoleInput{RoleName: aws.String("other"), AssumeRolePolicyDocument: aws.String(trust), Tags: test.tags})
		wantCode(t, name, err, test.code)
	}
	if _, err := client.UntagRole(ctx, &sdk.UntagRoleInput{RoleName: aws.String("demo-node"), TagKeys: []string{"Owner"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UpdateRole(ctx, &sdk.UpdateRoleInput{RoleName: aws.String("demo-node"), MaxSessionDuration: aws.Int32(7200)}); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(trust, "ec2", "lambda", 1)
	if _, err := client.UpdateAssumeRolePolicy(ctx, &sdk.UpdateAssumeRolePolicyInput{RoleName: aws.String("demo-node"), PolicyDocument: aws.String(changed)}); err != nil {
		t.Fatal(err)
	}
	got, err := client.GetRole(ctx, &sdk.GetRoleInput{RoleName: aws.String("demo-node")})
	if err != nil {
		t.Fatal(err)
	}
	document, err := url.QueryUnescape(*got.Role.AssumeRolePolicyDocument)
	if err != nil || document != changed {
		t.Errorf("got trust policy %s (%v), want %s", document, err, changed)
	}
	if *got.Role.MaxSessionDuration != 7200 || *got.Role.Description != "a node" || len(got.Role.Tags) != 1 || *got.Role.Tags[0].Value != "other" {
		t.Errorf("got role %+v", got.Role)
	}
	if door.IAM.Trusts("demo-node", "ec2.amazonaws.com") || !door.IAM.Trusts("demo-node", "lambda.amazonaws.com") {
		t.Error("the role trusts whom it trusted before")
	}

	if _, err := client.PutRolePolicy(ctx, &sdk.PutRolePolicyInput{RoleName: aws.String("demo-node"), PolicyName: aws.String("p"), PolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:DescribeInstances","Resource":"*"}}`)}); err != nil {
		t.Fatal(err)
	}
	managed := "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
	for range 2 { // attaching again changes nothing
		if _, err := client.AttachRolePolicy(ctx, &sdk.AttachRolePolicyInput{RoleName: aws.String("demo-node"), PolicyArn: aws.String(managed)}); err != nil {
			t.Fatal(err)
		}
	}
	inline, err := client.ListRolePolicies(ctx, &sdk.ListRolePoliciesInput{RoleName: aws.String("demo-node")})
	if err != nil || len(inline.PolicyNames) != 1 || inline.PolicyNames[0] != "p" {
		t.Errorf("got inline policies %+v, error %v", inline, err)
	}
	attached, err := client.ListAttachedRolePolicies(ctx, &sdk.ListAttachedRolePoliciesInput{RoleName: aws.String("demo-node")})
	if err != nil || len(attached.AttachedPolicies) != 1 || *attached.AttachedPolicies[0].PolicyName != "AmazonSSMManagedInstanceCore" {
		t.Errorf("got attached policies %+v, error %v", attached, err)
	}
	one, err := client.GetRolePolicy(ctx, &sdk.GetRolePolicyInput{RoleName: aws.String("demo-node"), PolicyName: aws.String("p")})
	if err != nil || !strings.Contains(*one.PolicyDocument, "ec2%3ADescribeInstances") {
		t.Errorf("got policy %+v, error %v", one, err)
	}

	remove := &sdk.DeleteRoleInput{RoleName: aws.String("demo-node")}
	_, err = client.DeleteRole(ctx, remove)
	wantCode(t, "delete with an inline policy", err, "DeleteConflict")
	if _, err := client.DeleteRolePolicy(ctx, &sdk.DeleteRolePolicyInput{RoleName: aws.String("demo-node"), PolicyName: aws.String("p")}); err != nil {
		t.Fatal(err)
	}
	_, err = client.DeleteRole(ctx, remove)
	wantCode(t, "delete with an attached policy", err, "DeleteConflict")
	if _, err := client.DetachRolePolicy(ctx, &sdk.DetachRolePolicyInput{RoleName: aws.String("demo-node"), PolicyArn: aws.String(managed)}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteRole(ctx, remove); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetRole(ctx, &sdk.GetRoleInput{RoleName: aws.String("demo-node")})
	wantCode(t, "get after delete", err, "NoSuchEntity")
}

func TestInstanceProfileLifecycle(t *testing.T) {
	t.Parallel()
	door := newDoor(t, policy(`{"Effect":"Allow","Action":"sts:*","Resource":"*"}`))
	client := sdk.NewFromConfig(door.Administrator())
	ctx, name := t.Context(), aws.String("demo")
	made, err := client.CreateInstanceProfile(ctx, &sdk.CreateInstanceProfileInput{
		InstanceProfileName: name, Tags: []types.Tag{{Key: aws.String("ClusterName"), Value: aws.String("demo")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CreateInstanceProfile(ctx, &sdk.CreateInstanceProfileInput{InstanceProfileName: name})
	wantCode(t, "create twice", err, "EntityAlreadyExists")
	add := &sdk.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String(role)}
	if _, err := client.AddRoleToInstanceProfile(ctx, add); err != nil {
		t.Fatal(err)
	}
	_, err = client.AddRoleToInstanceProfile(ctx, add)
	wantCode(t, "a second role", err, "LimitExceeded")
	for _, by := range []string{"demo", *made.InstanceProfile.Arn} {
		if found, ok := door.IAM.Profile(by); !ok || found.Role != role || found.ARN != *made.InstanceProfile.Arn {
			t.Errorf("by %s: got profile %+v, %v", by, found, ok)
		}
	}
	got, err := client.GetInstanceProfile(ctx, &sdk.GetInstanceProfileInput{InstanceProfileName: name})
	if err != nil || len(got.InstanceProfile.Roles) != 1 || *got.InstanceProfile.Roles[0].RoleName != role || len(got.InstanceProfile.Tags) != 1 {
		t.Errorf("got profile %+v, error %v", got, err)
	}
	of, err := client.ListInstanceProfilesForRole(ctx, &sdk.ListInstanceProfilesForRoleInput{RoleName: aws.String(role)})
	if err != nil || len(of.InstanceProfiles) != 1 {
		t.Errorf("got profiles %+v, error %v", of, err)
	}
	remove := &sdk.DeleteInstanceProfileInput{InstanceProfileName: name}
	_, err = client.DeleteInstanceProfile(ctx, remove)
	wantCode(t, "delete with a role", err, "DeleteConflict")
	if _, err := client.RemoveRoleFromInstanceProfile(ctx, &sdk.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String(role)}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteInstanceProfile(ctx, remove); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetInstanceProfile(ctx, &sdk.GetInstanceProfileInput{InstanceProfileName: name})
	wantCode(t, "get after delete", err, "NoSuchEntity")
}

func TestRolesThatAreRefused(t *testing.T) {
	t.Parallel()
	client := sdk.NewFromConfig(fake.NewDoor(iam.New(fake.Account, fake.Region)).Administrator())
	for name, test := range map[string]struct {
		in   sdk.CreateRoleInput
		code string
	}{
		"too long":                {sdk.CreateRoleInput{RoleName: aws.String(strings.Repeat("a", 65))}, "ValidationError"},
		"bad character":           {sdk.CreateRoleInput{RoleName: aws.String("a b")}, "ValidationError"},
		"bad path":                {sdk.CreateRoleInput{Path: aws.String("etcfs")}, "ValidationError"},
		"session too long":        {sdk.CreateRoleInput{MaxSessionDuration: aws.Int32(43201)}, "ValidationError"},
		"boundary":                {sdk.CreateRoleInput{PermissionsBoundary: aws.String("arn:aws:iam::aws:policy/x")}, "ValidationError"},
		"trust is no JSON":        {sdk.CreateRoleInput{AssumeRolePolicyDocument: aws.String("{")}, "MalformedPolicyDocument"},
		"trust without principal": {sdk.CreateRoleInput{AssumeRolePolicyDocument: aws.String(policy(`{"Effect":"Allow","Action":"sts:AssumeRole"}`))}, "MalformedPolicyDocument"},
		"trust with resource": {
			sdk.CreateRoleInput{AssumeRolePolicyDocument: aws.String(policy(`{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"Service":"ec2.amazonaws.com"},"Resource":"*"}`))},
			"MalformedPolicyDocument",
		},
		"trust of other actions": {
			sdk.CreateRoleInput{AssumeRolePolicyDocument: aws.String(policy(`{"Effect":"Allow","Action":"ec2:*","Principal":{"Service":"ec2.amazonaws.com"}}`))},
			"MalformedPolicyDocument",
		},
	} {
		in := test.in
		if in.RoleName == nil {
			in.RoleName = aws.String("demo")
		}
		if in.AssumeRolePolicyDocument == nil {
			in.AssumeRolePolicyDocument = aws.String(trust)
		}
		_, err := client.CreateRole(t.Context(), &in)
		wantCode(t, name, err, test.code)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := iam.New(fake.Account, fake.Region)
		door := fake.NewDoor(service, sts.New(fake.Account, service))
		err := fake.PutRole(t.Context(), door, role, "ec2.amazonaws.com", policy(`{"Effect":"Allow","Action":"iam:GetRole","Resource":"*"}`))
		if err != nil {
			t.Fatal(err)
		}
		config, err := door.As(role, session)
		if err != nil {
			t.Fatal(err)
		}
		identity, err := stssdk.NewFromConfig(config).GetCallerIdentity(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if *identity.Arn != principal.ARN || *identity.Account != fake.Account || !strings.HasSuffix(*identity.UserId, ":"+session) {
			t.Errorf("got identity %s, %s, %s", *identity.Arn, *identity.Account, *identity.UserId)
		}
		// A role is judged in IAM itself, too.
		client := sdk.NewFromConfig(config)
		if _, err := client.GetRole(t.Context(), &sdk.GetRoleInput{RoleName: aws.String(role)}); err != nil {
			t.Error(err)
		}
		_, err = client.CreateRole(t.Context(), &sdk.CreateRoleInput{RoleName: aws.String("other"), AssumeRolePolicyDocument: aws.String(trust)})
		wantCode(t, "what the role may not do", err, "AccessDenied")

		<-time.After(6 * time.Hour)
		<-time.After(time.Second)
		_, err = client.GetRole(t.Context(), &sdk.GetRoleInput{RoleName: aws.String(role)})
		wantCode(t, "expired keys", err, "InvalidClientTokenId")

		if _, err := service.Assume("missing", session); err == nil {
			t.Error("a role that does not exist was assumed")
		}
	})
}

func TestSessionsEndWithTheirRole(t *testing.T) {
	t.Parallel()
	door := newDoor(t, policy(`{"Effect":"Allow","Action":"iam:GetRole","Resource":"*"}`))
	config, err := door.As(role, session)
	if err != nil {
		t.Fatal(err)
	}
	administrator := sdk.NewFromConfig(door.Administrator())
	if _, err := administrator.DeleteRolePolicy(t.Context(), &sdk.DeleteRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String("policy")}); err != nil {
		t.Fatal(err)
	}
	if _, err := administrator.DeleteRole(t.Context(), &sdk.DeleteRoleInput{RoleName: aws.String(role)}); err != nil {
		t.Fatal(err)
	}
	// A new role of the same name is another role.
	if err := fake.PutRole(t.Context(), door, role, "ec2.amazonaws.com", policy(`{"Effect":"Allow","Action":"iam:GetRole","Resource":"*"}`)); err != nil {
		t.Fatal(err)
	}
	_, err = sdk.NewFromConfig(config).GetRole(t.Context(), &sdk.GetRoleInput{RoleName: aws.String(role)})
	wantCode(t, "keys of a deleted role", err, "InvalidClientTokenId")
}
