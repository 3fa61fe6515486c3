package ec2

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type launchTemplate struct {
	id, name string
	created  time.Time
	versions []*templateVersion // in order of their numbers, without those deleted
	latest   int
	standard int // the default version
}

type templateVersion struct {
	number      int
	description string
	created     time.Time
	data        templateData
}

// templateData is what an instance is launched with. It is described as it was
// given.
type templateData struct {
	ImageID            string             `xml:"imageId,omitempty" query:"ImageId"`
	InstanceType       string             `xml:"instanceType,omitempty"`
	KeyName            string             `xml:"keyName,omitempty"`
	UserData           string             `xml:"userData,omitempty"`
	EBSOptimized       *bool              `xml:"ebsOptimized" query:"EbsOptimized"`
	DisableTermination *bool              `xml:"disableApiTermination" query:"DisableApiTermination"`
	DisableStop        *bool              `xml:"disableApiStop" query:"DisableApiStop"`
	ShutdownBehavior   string             `xml:"instanceInitiatedShutdownBehavior,omitempty" query:"InstanceInitiatedShutdownBehavior"`
	Profile            *templateProfile   `xml:"iamInstanceProfile" query:"IamInstanceProfile"`
	SecurityGroups     []string           `xml:"securityGroupIdSet>item,omitempty" query:"SecurityGroupId"`
	BlockDevices       []templateDevice   `xml:"blockDeviceMappingSet>item,omitempty" query:"BlockDeviceMapping"`
	Interfaces         []templateNIC      `xml:"networkInterfaceSet>item,omitempty" query:"NetworkInterface"`
	Metadata           *templateMetadata  `xml:"metadataOptions" query:"MetadataOptions"`
	Monitoring         *templateMonitor   `xml:"monitoring"`
	Placement          *templatePlacement `xml:"placement"`
	Credit             *templateCredit    `xml:"creditSpecification" query:"CreditSpecification"`
	Tags               []tagSpecification `xml:"tagSpecificationSet>item,omitempty" query:"TagSpecification"`
}

type templateProfile struct {
	ARN  string `xml:"arn,omitempty" query:"Arn"`
	Name string `xml:"name,omitempty"`
}

type templateDevice struct {
	Device string       `xml:"deviceName,omitempty" query:"DeviceName"`
	EBS    *templateEBS `xml:"ebs" query:"Ebs"`
}

type templateEBS struct {
	Size                *int   `xml:"volumeSize" query:"VolumeSize"`
	Type                string `xml:"volumeType,omitempty" query:"VolumeType"`
	IOPS                *int   `xml:"iops" query:"Iops"`
	Throughput          *int   `xml:"throughput"`
	Encrypted           *bool  `xml:"encrypted"`
	KMSKey              string `xml:"kmsKeyId,omitempty" query:"KmsKeyId"`
	DeleteOnTermination *bool  `xml:"deleteOnTermination"`
}

type templateNIC struct {
	DeviceIndex         *int     `xml:"deviceIndex"`
	Description         string   `xml:"description,omitempty"`
	Subnet              string   `xml:"subnetId,omitempty" query:"SubnetId"`
	PublicAddress       *bool    `xml:"associatePublicIpAddress" query:"AssociatePublicIpAddress"`
	DeleteOnTermination *bool    `xml:"deleteOnTermination"`
	Groups              []string `xml:"groupSet>groupId,omitempty" query:"SecurityGroupId"`
}

type templateMetadata struct {
	State        string `xml:"state,omitempty" query:"-"`
	Tokens       string `xml:"httpTokens,omitempty" query:"HttpTokens"`
	Endpoint     string `xml:"httpEndpoint,omitempty" query:"HttpEndpoint"`
	HopLimit     *int   `xml:"httpPutResponseHopLimit" query:"HttpPutResponseHopLimit"`
	IPv6         string `xml:"httpProtocolIpv6,omitempty" query:"HttpProtocolIpv6"`
	InstanceTags string `xml:"instanceMetadataTags,omitempty" query:"InstanceMetadataTags"`
}

type templateMonitor struct {
	Enabled *bool `xml:"enabled"`
}

type templatePlacement struct {
	Zone    string `xml:"availabilityZone,omitempty" query:"AvailabilityZone"`
	Tenancy string `xml:"tenancy,omitempty"`
}

type templateCredit struct {
	CPU string `xml:"cpuCredits,omitempty" query:"CpuCredits"`
}

// mostUserData is how many bytes user data can have before it is encoded.
const mostUserData = 16384

// check checks what EC2 checks when a template is made; the rest is found out
// at a launch.
func (d *templateData) check() error {
	raw, err := base64.StdEncoding.DecodeString(d.UserData)
	if err != nil {
		return clientError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(raw) > mostUserData {
		return clientError("InvalidUserData.Malformed", "User data is limited to %d bytes; it has %d.", mostUserData, len(raw))
	}
	if d.Profile != nil && d.Profile.ARN != "" && d.Profile.Name != "" {
		return clientError("InvalidParameterCombination", "The parameter iamInstanceProfile.name may not be used in combination with iamInstanceProfile.arn")
	}
	if len(d.Interfaces) > 0 && len(d.SecurityGroups) > 0 {
		return clientError("InvalidParameterCombination", "Network interfaces and an instance-level security groups may not be specified on the same request")
	}
	if d.Metadata != nil {
		if hops := d.Metadata.HopLimit; hops != nil && (*hops < 1 || *hops > 64) {
			return clientError("InvalidParameterValue", "Value (%d) for parameter HttpPutResponseHopLimit is invalid. It must be between 1 and 64.", *hops)
		}
		d.Metadata.State = "applied"
	}
	if d.ShutdownBehavior != "" && d.ShutdownBehavior != "stop" && d.ShutdownBehavior != "terminate" {
		return clientError("InvalidParameterValue", "Value (%s) for parameter instanceInitiatedShutdownBehavior is invalid.", d.ShutdownBehavior)
	}
	for _, each := range d.BlockDevices {
		if err := each.check(); err != nil {
			return err
		}
	}
	for _, each := range d.Tags {
		for _, each := range each.Tags {
			if err := checkTag(each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d templateDevice) check() error {
	if d.EBS == nil || d.EBS.Size == nil {
		return nil
	}
	root := volume{kind: d.EBS.Type, size: *d.EBS.Size}
	if root.kind == "" {
		root.kind = "gp2"
	}
	if d.EBS.IOPS != nil {
		root.iops = *d.EBS.IOPS
	}
	if d.EBS.Throughput != nil {
		root.throughput = *d.EBS.Throughput
	}
	return root.check()
}

type createLaunchTemplateInput struct {
	Name           string             `query:"LaunchTemplateName,required"`
	Description    string             `query:"VersionDescription"`
	Data           templateData       `query:"LaunchTemplateData,required"`
	Specifications []tagSpecification `query:"TagSpecification"`
	ClientToken    string
}

type launchTemplateXML struct {
	ID             string `xml:"launchTemplateId"`
	Name           string `xml:"launchTemplateName"`
	CreateTime     string `xml:"createTime"`
	CreatedBy      string `xml:"createdBy"`
	DefaultVersion int    `xml:"defaultVersionNumber"`
	LatestVersion  int    `xml:"latestVersionNumber"`
	Tags           []tag  `xml:"tagSet>item"`
}

type launchTemplateOutput struct {
	Template launchTemplateXML `xml:"launchTemplate"`
}

func (s *Service) templateXML(t *launchTemplate) launchTemplateXML {
	return launchTemplateXML{
		ID: t.id, Name: t.name, CreateTime: timestamp(t.created), CreatedBy: "arn:aws:iam::" + s.config.AccountID + ":user/administrator",
		DefaultVersion: t.standard, LatestVersion: t.latest, Tags: tagSet(s.tags[t.id]),
	}
}

func (s *Service) createLaunchTemplate(_ context.Context, c *api.Call, in createLaunchTemplateInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tags, err := tagsFor("launch-template", in.Specifications)
	if err != nil {
		return nil, err
	}
	if err := s.authorizeCreate(c, "launch-template", tags, nil); err != nil {
		return nil, err
	}
	if existing := s.templates[s.tokens["CreateLaunchTemplate "+in.ClientToken]]; existing != nil {
		return launchTemplateOutput{s.templateXML(existing)}, nil
	}
	if len(in.Name) < 3 || len(in.Name) > 128 || strings.Trim(in.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789().-/_") != "" {
		return nil, clientError("InvalidLaunchTemplateName.MalformedException",
			"A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.")
	}
	for _, each := range s.templates {
		if each.name == in.Name {
			return nil, clientError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
	}
	if err := in.Data.check(); err != nil {
		return nil, err
	}
	now := time.Now()
	t := &launchTemplate{id: newID("lt"), name: in.Name, created: now, latest: 1, standard: 1}
	t.versions = []*templateVersion{{number: 1, description: in.Description, created: now, data: in.Data}}
	s.templates[t.id] = t
	s.setTags(t.id, tags)
	if in.ClientToken != "" {
		s.tokens["CreateLaunchTemplate "+in.ClientToken] = t.id
	}
	return launchTemplateOutput{s.templateXML(t)}, nil
}

// template finds a template by ID or name.
func (s *Service) template(id, name string) (*launchTemplate, error) {
	if id != "" {
		if t := s.templates[id]; t != nil {
			return t, nil
		}
		return nil, clientError("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	}
	for _, each := range s.templates {
		if each.name == name {
			return each, nil
		}
	}
	return nil, clientError("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
}

func (s *Service) authorizedTemplate(c *api.Call, id, name string) (*launchTemplate, error) {
	t, err := s.template(id, name)
	if err != nil {
		if denied := c.Authorize(s.on(c, "launch-template", id, nil)); denied != nil {
			return nil, denied
		}
		return nil, err
	}
	return t, c.Authorize(s.on(c, "launch-template", t.id, nil))
}

// version finds a version by number, $Latest or $Default.
func (t *launchTemplate) version(text string) (*templateVersion, error) {
	number := t.standard
	switch text {
	case "$Default", "":
	case "$Latest":
		number = t.latest
	default:
		parsed, err := strconv.Atoi(text)
		if err != nil {
			return nil, clientError("InvalidLaunchTemplateVersion.Malformed", "Invalid launch template version: %s", text)
		}
		number = parsed
	}
	for _, each := range t.versions {
		if each.number == number {
			return each, nil
		}
	}
	return nil, clientError("InvalidLaunchTemplateId.VersionNotFound",
		"Could not find launch template version %s for template %s", text, t.id)
}

type createLaunchTemplateVersionInput struct {
	ID            string `query:"LaunchTemplateId"`
	Name          string `query:"LaunchTemplateName"`
	Description   string `query:"VersionDescription"`
	SourceVersion string
	Data          templateData `query:"LaunchTemplateData,required"`
	ClientToken   string
}

type templateVersionXML struct {
	ID          string       `xml:"launchTemplateId"`
	Name        string       `xml:"launchTemplateName"`
	Number      int          `xml:"versionNumber"`
	Description string       `xml:"versionDescription,omitempty"`
	CreateTime  string       `xml:"createTime"`
	CreatedBy   string       `xml:"createdBy"`
	Default     bool         `xml:"defaultVersion"`
	Data        templateData `xml:"launchTemplateData"`
}

type templateVersionOutput struct {
	Version templateVersionXML `xml:"launchTemplateVersion"`
}

func (s *Service) versionXML(t *launchTemplate, v *templateVersion) templateVersionXML {
	return templateVersionXML{
		ID: t.id, Name: t.name, Number: v.number, Description: v.description, CreateTime: timestamp(v.created),
		CreatedBy: "arn:aws:iam::" + s.config.AccountID + ":user/administrator", Default: v.number == t.standard, Data: v.data,
	}
}

func (s *Service) createLaunchTemplateVersion(_ context.Context, c *api.Call, in createLaunchTemplateVersionInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.authorizedTemplate(c, in.ID, in.Name)
	if err != nil {
		return nil, err
	}
	token := "CreateLaunchTemplateVersion " + t.id + " " + in.ClientToken
	if number, ok := s.tokens[token]; ok && in.ClientToken != "" {
		if existing, err := t.version(number); err == nil {
			return templateVersionOutput{s.versionXML(t, existing)}, nil
		}
	}
	if in.SourceVersion != "" {
		return nil, clientError("UnsupportedOperation", "this region makes no version out of another: give all of the new one's data")
	}
	if err := in.Data.check(); err != nil {
		return nil, err
	}
	t.latest++
	v := &templateVersion{number: t.latest, description: in.Description, created: time.Now(), data: in.Data}
	t.versions = append(t.versions, v)
	s.tokens[token] = strconv.Itoa(v.number)
	return templateVersionOutput{s.versionXML(t, v)}, nil
}

type modifyLaunchTemplateInput struct {
	ID          string `query:"LaunchTemplateId"`
	Name        string `query:"LaunchTemplateName"`
	Default     string `query:"SetDefaultVersion"`
	ClientToken string
}

func (s *Service) modifyLaunchTemplate(_ context.Context, c *api.Call, in modifyLaunchTemplateInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.authorizedTemplate(c, in.ID, in.Name)
	if err != nil {
		return nil, err
	}
	v, err := t.version(in.Default)
	if err != nil {
		return nil, err
	}
	t.standard = v.number
	return launchTemplateOutput{s.templateXML(t)}, nil
}

type deleteLaunchTemplateInput struct {
	ID   string `query:"LaunchTemplateId"`
	Name string `query:"LaunchTemplateName"`
}

func (s *Service) deleteLaunchTemplate(_ context.Context, c *api.Call, in deleteLaunchTemplateInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.authorizedTemplate(c, in.ID, in.Name)
	if err != nil {
		return nil, err
	}
	gone := s.templateXML(t)
	delete(s.templates, t.id)
	delete(s.tags, t.id)
	return launchTemplateOutput{gone}, nil
}

type describeLaunchTemplatesInput struct {
	IDs        []string `query:"LaunchTemplateId"`
	Names      []string `query:"LaunchTemplateName"`
	Filters    []filter `query:"Filter"`
	MaxResults int
	NextToken  string
}

type describeLaunchTemplatesOutput struct {
	Templates []launchTemplateXML `xml:"launchTemplates>item"`
	NextToken string              `xml:"nextToken,omitempty"`
}

func (s *Service) describeLaunchTemplates(_ context.Context, c *api.Call, in describeLaunchTemplatesInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	describe := func(t *launchTemplate) attributes {
		return attributes{"launch-template-name": {t.name}, "create-time": {timestamp(t.created)}}.withTags(s.tags[t.id])
	}
	id := func(t *launchTemplate) string { return t.id }
	selected, err := chosen(sorted(s.templates), in.IDs, nil, id, describe, func(id string) error {
		_, err := s.template(id, "")
		return err
	})
	if err != nil {
		return nil, err
	}
	name := func(t *launchTemplate) string { return t.name }
	selected, err = chosen(selected, in.Names, in.Filters, name, describe, func(name string) error {
		return clientError("InvalidLaunchTemplateName.NotFoundException", "At least one of the launch templates specified in the request does not exist: %s", name)
	})
	if err != nil {
		return nil, err
	}
	cut, next, err := page(selection{in.Filters, in.MaxResults, in.NextToken}, 1, selected, id)
	out := describeLaunchTemplatesOutput{NextToken: next}
	for _, each := range cut {
		out.Templates = append(out.Templates, s.templateXML(each))
	}
	return out, err
}

type describeLaunchTemplateVersionsInput struct {
	ID         string   `query:"LaunchTemplateId"`
	Name       string   `query:"LaunchTemplateName"`
	Versions   []string `query:"LaunchTemplateVersion"`
	MaxResults int
	NextToken  string
}

type describeLaunchTemplateVersionsOutput struct {
	Versions  []templateVersionXML `xml:"launchTemplateVersionSet>item"`
	NextToken string               `xml:"nextToken,omitempty"`
}

func (s *Service) describeLaunchTemplateVersions(_ context.Context, c *api.Call, in describeLaunchTemplateVersionsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.authorizeDescribe(c); err != nil {
		return nil, err
	}
	t, err := s.template(in.ID, in.Name)
	if err != nil {
		return nil, err
	}
	selected := t.versions
	if len(in.Versions) > 0 {
		selected = nil
		for _, text := range in.Versions {
			v, err := t.version(text)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(selected, v) {
				selected = append(selected, v)
			}
		}
	}
	id := func(v *templateVersion) string { return fmt.Sprintf("%09d", v.number) }
	cut, next, err := page(selection{nil, in.MaxResults, in.NextToken}, 1, selected, id)
	out := describeLaunchTemplateVersionsOutput{NextToken: next}
	for _, each := range slices.Backward(cut) { // the newest first, within the page
		out.Versions = append(out.Versions, s.versionXML(t, each))
	}
	return out, err
}

// FindTemplate tells the ID and the name of a launch template, by either.
func (s *Service) FindTemplate(id, name string) (foundID, foundName string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.template(id, name)
	if err != nil {
		return "", "", err
	}
	return t.id, t.name, nil
}

// TemplateVersion returns the number of a version of a launch template, which
// may be named by $Latest and $Default.
func (s *Service) TemplateVersion(id, version string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.template(id, "")
	if err != nil {
		return 0, err
	}
	v, err := t.version(version)
	if err != nil {
		return 0, err
	}
	return v.number, nil
}
