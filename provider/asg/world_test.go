package asg_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	presource "github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcfs/pulumi-etcfs/provider"
	"github.com/etcfs/pulumi-etcfs/provider/artifact"
	"github.com/etcfs/pulumi-etcfs/provider/asg"
)

// world is what stands behind the component in these tests: it answers lookups
// and registrations as the engine and the AWS provider would, and remembers
// them.
type world struct {
	preview   bool
	partition string
	dnsSuffix string
	// noSubnet fails the subnet lookup.
	noSubnet bool
	vpcID    string
	// types are the instance types that exist besides the default one.
	types map[string]instanceType

	mu        sync.Mutex
	resources map[string]child // by type and name
	lookups   []lookup
}

// child is one resource that the component declared.
type child struct {
	typ, name    string
	inputs       presource.PropertyMap
	parent       string
	provider     string
	dependencies []string // URNs
	urn          string
	// trigger is the option replacementTrigger, with which a resource is replaced
	// when it changes.
	trigger *structpb.Value
}

// instanceType is what AWS tells about an instance type.
type instanceType struct {
	hypervisor, architecture string
	metal, nvme              bool
	offered                  bool
}

type lookup struct {
	token    string
	args     presource.PropertyMap
	provider string
}

func newWorld() *world {
	return &world{partition: "aws", dnsSuffix: "amazonaws.com", vpcID: "vpc-0123456789abcdef0", resources: map[string]child{}}
}

// Identities of what the world creates; volumes have one that a node accepts.
const (
	volumeID = "vol-0123456789abcdef0"
	zone     = "eu-west-1a"
	subnetID = "subnet-0123456789abcdef0"
)

// Call answers a lookup.
func (w *world) Call(args pulumi.MockCallArgs) (presource.PropertyMap, error) {
	w.mu.Lock()
	w.lookups = append(w.lookups, lookup{args.Token, args.Args, args.Provider})
	w.mu.Unlock()
	switch args.Token {
	case "pulumi:pulumi:getResource": // the engine's own, for the provider that is passed along
		return presource.PropertyMap{"urn": args.Args["urn"], "id": presource.NewProperty("4711"), "state": presource.NewProperty(presource.PropertyMap{})}, nil
	case "aws:index/getPartition:getPartition":
		return presource.NewPropertyMapFromMap(map[string]any{"id": w.partition, "partition": w.partition, "dnsSuffix": w.dnsSuffix, "reverseDnsPrefix": "com.amazonaws"}), nil
	case "aws:index/getRegion:getRegion":
		return presource.NewPropertyMapFromMap(map[string]any{"id": "eu-west-1", "name": "eu-west-1", "endpoint": "", "description": ""}), nil
	case "aws:index/getCallerIdentity:getCallerIdentity":
		return presource.NewPropertyMapFromMap(map[string]any{"accountId": "123456789012", "arn": "", "id": "", "userId": ""}), nil
	case "aws:ec2/getSubnet:getSubnet":
		if w.noSubnet {
			return nil, asProvider(args.Token, "no matching EC2 Subnet found")
		}
		in := zone
		if asked, ok := args.Args["availabilityZone"]; ok {
			in = asked.StringValue()
		}
		return presource.NewPropertyMapFromMap(map[string]any{"id": subnetID, "availabilityZone": in, "vpcId": w.vpcID}), nil
	case "aws:index/getAvailabilityZones:getAvailabilityZones":
		return presource.NewPropertyMapFromMap(map[string]any{"id": "eu-west-1", "names": []any{zone, "eu-west-1b"}}), nil
	case "aws:ec2/getInstanceType:getInstanceType":
		name := args.Args["instanceType"].StringValue()
		kind, ok := w.instanceType(name)
		if !ok {
			return nil, asProvider(args.Token, "no matching EC2 Instance Type found")
		}
		nvme := "unsupported"
		if kind.nvme {
			nvme = "required"
		}
		return presource.NewPropertyMapFromMap(map[string]any{
			"id": name, "instanceType": name, "hypervisor": kind.hypervisor, "bareMetal": kind.metal, "ebsNvmeSupport": nvme,
			"supportedArchitectures": []any{kind.architecture},
		}), nil
	case "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings":
		offered := []any{}
		for _, filter := range args.Args["filters"].ArrayValue() {
			name := filter.ObjectValue()["values"].ArrayValue()[0].StringValue()
			if kind, ok := w.instanceType(name); ok && kind.offered {
				offered = append(offered, name)
			}
		}
		return presource.NewPropertyMapFromMap(map[string]any{"id": "eu-west-1", "instanceTypes": offered}), nil
	}
	return nil, fmt.Errorf("the world has no %s", args.Token)
}

// asProvider words a failure as it comes from the AWS provider through the
// engine.
func asProvider(token, cause string) error {
	return fmt.Errorf("invocation of %[1]s returned an error: invoking %[1]s: 1 error occurred:\n\t* %[2]s\n\n", token, cause)
}

// instanceType looks up an instance type: the default one, and what a test
// added.
func (w *world) instanceType(name string) (instanceType, bool) {
	if kind, ok := w.types[name]; ok {
		return kind, true
	}
	return instanceType{hypervisor: "nitro", architecture: "x86_64", nvme: true, offered: true}, name == "t3.medium"
}

// NewResource creates a resource. In a preview nothing is told that AWS, and
// not the program, decides.
func (w *world) NewResource(args pulumi.MockResourceArgs) (string, presource.PropertyMap, error) {
	rpc := args.RegisterRPC
	dependencies := slices.Clone(rpc.GetDependencies())
	for _, of := range rpc.GetPropertyDependencies() {
		dependencies = append(dependencies, of.GetUrns()...)
	}
	slices.Sort(dependencies)
	made := child{
		typ: args.TypeToken, name: args.Name, inputs: args.Inputs,
		parent: rpc.GetParent(), provider: rpc.GetProvider(), dependencies: slices.Compact(dependencies),
		urn: urnOf(rpc.GetParent(), args.TypeToken, args.Name), trigger: rpc.GetReplacementTrigger(),
	}
	w.mu.Lock()
	w.resources[key(args.TypeToken, args.Name)] = made
	w.mu.Unlock()

	state := args.Inputs.Copy()
	if w.preview || args.TypeToken == asg.Token {
		return "", state, nil
	}
	id := args.Name + "-id"
	if args.TypeToken == "aws:ebs/volume:Volume" {
		id = volumeID
	}
	if prefix, ok := args.Inputs["namePrefix"]; ok {
		state["name"] = presource.NewProperty(plain(prefix).StringValue() + "20261129")
	}
	if prefix, ok := args.Inputs["bucketPrefix"]; ok {
		state["bucket"] = presource.NewProperty(plain(prefix).StringValue() + "20261129")
	}
	if args.TypeToken == "aws:ec2/launchTemplate:LaunchTemplate" {
		state["latestVersion"] = presource.NewProperty(7.0)
	}
	if args.TypeToken == "aws:sqs/queue:Queue" {
		state["url"] = presource.NewProperty("https://sqs.eu-west-1.amazonaws.com/123456789012/" + plain(args.Inputs["name"]).StringValue())
	}
	state["arn"] = presource.NewProperty("arn:of:" + args.Name)
	return id, state, nil
}

func key(typ, name string) string { return typ + " " + name }

func urnOf(parent, typ, name string) string {
	var parentType tokens.Type
	if urn := presource.URN(parent); urn != "" && urn.QualifiedType() != presource.RootStackType {
		parentType = urn.QualifiedType()
	}
	return string(presource.NewURN("stack", "project", parentType, tokens.Type(typ), name))
}

// clusterURN is where the tests construct the component.
var clusterURN = presource.NewURN("stack", "project", "", asg.Token, "fs")

const awsProvider = "urn:pulumi:stack::project::pulumi:providers:aws::elsewhere::4711"

// construct runs the component as the engine does, over the provider's protocol.
func (w *world) construct(t *testing.T, inputs map[string]property.Value) (property.Map, error) {
	t.Helper()
	served, err := provider.New(programs(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, err := integration.NewServer(ctx, provider.Name, semver.MustParse(provider.Version),
		integration.WithProvider(served), integration.WithMocks(w))
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Construct(p.ConstructRequest{
		Urn:      clusterURN,
		DryRun:   w.preview,
		Inputs:   property.NewMap(inputs),
		Parallel: 16,
		Providers: map[tokens.Package]p.ProviderReference{
			"aws": {Urn: presource.URN(strings.TrimSuffix(awsProvider, "::4711")), ID: "4711"},
		},
	})
	return response.State, withDetails(err)
}

// refusal is an error that lists what is wrong with inputs: "path: reason".
type refusal []string

func (r refusal) Error() string { return strings.Join(r, "\n") }

// paths are the properties that are refused.
func (r refusal) paths() (list []string) {
	for _, problem := range r {
		path, _, _ := strings.Cut(problem, ": ")
		list = append(list, path)
	}
	return list
}

// withDetails takes the details out of an error of the protocol, which the
// engine prints per property.
func withDetails(err error) error {
	for _, detail := range status.Convert(err).Details() {
		if invalid, ok := detail.(*pulumirpc.InputPropertiesError); ok {
			var list refusal
			for _, e := range invalid.GetErrors() {
				list = append(list, e.GetPropertyPath()+": "+e.GetReason())
			}
			return list
		}
	}
	return err
}

// programs are small stand-ins for the node's programs: here only their names
// and checksums matter.
func programs(t *testing.T) artifact.Bundle {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{artifact.BootstrapName, artifact.FunctionName} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("the program "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return artifact.Folder(folder)
}

// given are the least inputs, and more.
func given(more map[string]property.Value) map[string]property.Value {
	inputs := map[string]property.Value{
		"clusterName":      property.New("demo"),
		"availabilityZone": property.New(zone),
	}
	maps.Copy(inputs, more)
	return inputs
}

// the returns the one resource of a type and name.
func (w *world) the(t *testing.T, typ, name string) child {
	t.Helper()
	found, ok := w.resources[key(typ, name)]
	if !ok {
		t.Fatalf("no %s %s among %v", typ, name, slices.Sorted(maps.Keys(w.resources)))
	}
	return found
}

// children are all resources but the component.
func (w *world) children() []child {
	var list []child
	for _, k := range slices.Sorted(maps.Keys(w.resources)) {
		if c := w.resources[k]; c.typ != asg.Token {
			list = append(list, c)
		}
	}
	return list
}

// before lists, by URN, all that a resource depends on, directly or not.
func (w *world) before(c child) map[string]bool {
	all := map[string]bool{}
	byURN := map[string]child{}
	for _, other := range w.resources {
		byURN[other.urn] = other
	}
	var visit func(child)
	visit = func(c child) {
		for _, urn := range c.dependencies {
			if !all[urn] {
				all[urn] = true
				visit(byURN[urn])
			}
		}
	}
	visit(c)
	return all
}

// text is a known string input, without the wrapping of an output.
func (c child) text(t *testing.T, name string) string {
	t.Helper()
	value := plain(c.inputs[presource.PropertyKey(name)])
	if !value.IsString() {
		t.Fatalf("%s %s has no text %s, but %v", c.typ, c.name, name, value)
	}
	return value.StringValue()
}

// plain takes the value out of outputs and secrets, everywhere below.
func plain(value presource.PropertyValue) presource.PropertyValue {
	switch {
	case value.IsOutput():
		if !value.OutputValue().Known {
			return presource.MakeComputed(presource.NewProperty(""))
		}
		return plain(value.OutputValue().Element)
	case value.IsSecret():
		return plain(value.SecretValue().Element)
	case value.IsArray():
		var list []presource.PropertyValue
		for _, entry := range value.ArrayValue() {
			list = append(list, plain(entry))
		}
		return presource.NewProperty(list)
	case value.IsObject():
		object := presource.PropertyMap{}
		for name, entry := range value.ObjectValue() {
			object[name] = plain(entry)
		}
		return presource.NewProperty(object)
	}
	return value
}

// String shows a resource with its inputs, in which JSON is laid out and the
// user data is readable.
func (c child) String() string {
	inputs := map[string]any{}
	for name, value := range c.inputs {
		inputs[string(name)] = readable(string(name), plain(value).Mappable())
	}
	text, err := json.MarshalIndent(inputs, "", "  ")
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %s %s\n", c.typ, c.name, text)
}

func readable(name string, value any) any {
	text, ok := value.(string)
	if asset, is := value.(*presource.Asset); is {
		return "asset " + filepath.Base(asset.Path)
	}
	if archive, is := value.(*presource.Archive); is {
		return "archive " + filepath.Base(archive.Path)
	}
	if !ok {
		return value
	}
	if name == "userData" {
		script, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err.Error()
		}
		head, _, _ := strings.Cut(string(script), "\n\n")
		return append(strings.Split(head, "\n"), "… userdata.sh")
	}
	var document any
	if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &document) == nil {
		return document
	}
	return text
}
