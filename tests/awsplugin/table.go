package awsplugin

// Resources is the table of the types of resources that the plugin provisions.
func Resources() []Resource {
	return []Resource{
		define("aws:autoscaling/group:Group", groupHandler),
		define("aws:autoscaling/lifecycleHook:LifecycleHook", lifecycleHookHandler),
		define("aws:cloudwatch/eventRule:EventRule", eventRuleHandler),
		define("aws:cloudwatch/eventTarget:EventTarget", eventTargetHandler),
		define("aws:cloudwatch/logGroup:LogGroup", logGroupHandler),
		define("aws:cloudwatch/metricAlarm:MetricAlarm", metricAlarmHandler),
		define("aws:dynamodb/table:Table", tableHandler),
		define("aws:ebs/volume:Volume", volumeHandler),
		define("aws:ec2/launchTemplate:LaunchTemplate", launchTemplateHandler),
		define("aws:ec2/securityGroup:SecurityGroup", securityGroupHandler),
		define("aws:ec2/securityGroupRule:SecurityGroupRule", securityGroupRuleHandler),
		define("aws:iam/instanceProfile:InstanceProfile", instanceProfileHandler),
		define("aws:iam/role:Role", roleHandler),
		define("aws:iam/rolePolicy:RolePolicy", rolePolicyHandler),
		define("aws:iam/rolePolicyAttachment:RolePolicyAttachment", rolePolicyAttachmentHandler),
		define("aws:lambda/function:Function", functionHandler),
		define("aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig", functionEventInvokeConfigHandler),
		define("aws:lambda/permission:Permission", permissionHandler),
		define("aws:s3/bucketObjectv2:BucketObjectv2", bucketObjectHandler),
		define("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", publicAccessBlockHandler),
		define("aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2", bucketEncryptionHandler),
		define("aws:s3/bucketV2:BucketV2", bucketHandler),
		define("aws:sqs/queue:Queue", queueHandler),
		define("aws:sqs/queuePolicy:QueuePolicy", queuePolicyHandler),
		define("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", securityGroupEgressRuleHandler),
		define("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", securityGroupIngressRuleHandler),
	}
}

// Functions is the table of the functions that the plugin answers.
func Functions() []Function {
	return []Function{
		lookup("aws:ec2/getInstanceType:getInstanceType", getInstanceType),
		lookup("aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings", getInstanceTypeOfferings),
		lookup("aws:ec2/getSubnet:getSubnet", getSubnet),
		lookup("aws:ec2/getSubnets:getSubnets", getSubnets),
		lookup("aws:ec2/getVpc:getVpc", getVPC),
		lookup("aws:index/getAvailabilityZones:getAvailabilityZones", getAvailabilityZones),
		lookup("aws:index/getCallerIdentity:getCallerIdentity", getCallerIdentity),
		lookup("aws:index/getPartition:getPartition", getPartition),
		lookup("aws:index/getRegion:getRegion", getRegion),
		lookup("aws:ssm/getParameter:getParameter", getParameter),
	}
}
