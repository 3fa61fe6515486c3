package iam

import (
	"context"
	"net/url"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// managedPolicies are the AWS managed policies that the region knows, by ARN,
// with their content as AWS publishes it:
// https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html
func managedPolicies() map[string]string {
	return map[string]string{
		"arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore": `{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Effect": "Allow",
      "Action": [
        "ssm:DescribeAssociation",
        "ssm:GetDeployablePatchSnapshotForInstance",
        "ssm:GetDocument",
        "ssm:DescribeDocument",
        "ssm:GetManifest",
        "ssm:GetParameter",
        "ssm:GetParameters",
        "ssm:ListAssociations",
        "ssm:ListInstanceAssociations",
        "ssm:PutInventory",
        "ssm:PutComplianceItems",
        "ssm:PutConfigurePackageResult",
        "ssm:UpdateAssociationStatus",
        "ssm:UpdateInstanceAssociationStatus",
        "ssm:UpdateInstanceInformation"
      ],
      "Resource": "*"
    },
    {
      "Effect": "Allow",
      "Action": [
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel"
      ],
      "Resource": "*"
    },
    {
      "Effect": "Allow",
      "Action": [
        "ec2messages:AcknowledgeMessage",
        "ec2messages:DeleteMessage",
        "ec2messages:FailMessage",
        "ec2messages:GetEndpoint",
        "ec2messages:GetMessages",
        "ec2messages:SendReply"
      ],
      "Resource": "*"
    }
  ]
}`,
		"arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole": `{
  "Version": "2012-10-17",
  "Statement": [
    {
      "Effect": "Allow",
      "Action": [
        "logs:CreateLogGroup",
        "logs:CreateLogStream",
        "logs:PutLogEvents"
      ],
      "Resource": "*"
    }
  ]
}`,
	}
}

// managed is the content of a managed policy, nil when the region does not
// know it.
func managed(arn string) *document {
	text, ok := managedPolicies()[arn]
	if !ok {
		return nil
	}
	policy, err := parseIdentityPolicy(text)
	if err != nil {
		panic("iam: managed policy " + arn + ": " + err.Error()) // a typing error above
	}
	return policy
}

type policyResult struct {
	Policy struct {
		PolicyName       string
		ARN              string `xml:"Arn"`
		DefaultVersionID string `xml:"DefaultVersionId"`
		IsAttachable     bool
	}
}

func (s *Service) getPolicy(_ context.Context, c *api.Call) (any, error) {
	arn := c.Params.Get("PolicyArn")
	if err := c.AuthorizeOn(arn); err != nil {
		return nil, err
	}
	if managed(arn) == nil {
		return nil, noSuchEntity("Policy %s was not found.", arn)
	}
	var result policyResult
	result.Policy.PolicyName, result.Policy.ARN = policyName(arn), arn
	result.Policy.DefaultVersionID, result.Policy.IsAttachable = managedVersion, true
	return result, nil
}

// managedVersion is the only version that the region has of a managed policy.
const managedVersion = "v1"

type policyVersionResult struct {
	PolicyVersion struct {
		Document         string
		VersionID        string `xml:"VersionId"`
		IsDefaultVersion bool
	}
}

func (s *Service) getPolicyVersion(_ context.Context, c *api.Call) (any, error) {
	arn, version := c.Params.Get("PolicyArn"), c.Params.Get("VersionId")
	if err := c.AuthorizeOn(arn); err != nil {
		return nil, err
	}
	policy := managed(arn)
	if policy == nil || version != managedVersion {
		return nil, noSuchEntity("Policy %s version %s does not exist or is not attachable.", arn, version)
	}
	var result policyVersionResult
	result.PolicyVersion.Document = url.QueryEscape(policy.text)
	result.PolicyVersion.VersionID, result.PolicyVersion.IsDefaultVersion = version, true
	return result, nil
}
