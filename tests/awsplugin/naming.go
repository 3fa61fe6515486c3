package awsplugin

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// naming says which property holds a resource's physical name, "" for none.
// A name that the program does not give is made of the resource's logical name
// and seven random hex digits, and kept for the life of the resource.
type naming struct {
	property string
	max      int
	lower    bool
}

// defaultsKey is the input in which the real plugin keeps the names of the
// inputs that it filled in itself.
const defaultsKey = "__defaults"

// apply fills in the name when neither it nor a prefix is given. A name filled
// in before is kept.
func (n naming) apply(urn resource.URN, seed []byte, prior, inputs property.Map) (property.Map, error) {
	var filled []property.Value
	if n.property != "" && inputs.Get(n.property).IsNull() && inputs.Get(n.property+"Prefix").IsNull() {
		name := prior.Get(n.property)
		if !name.IsString() || !defaulted(prior, n.property) {
			logical := urn.Name()
			if n.lower {
				logical = strings.ToLower(logical)
			}
			made, err := resource.NewUniqueName(seed, logical+"-", 7, n.max, nil)
			if err != nil {
				return inputs, fmt.Errorf("make a name for %s: %w", urn.Name(), err)
			}
			name = property.New(made)
		}
		inputs = inputs.Set(n.property, name)
		filled = append(filled, property.New(n.property))
	}
	return inputs.Set(defaultsKey, property.New(append([]property.Value{}, filled...))), nil
}

// given says whether the program chose the name itself. The old resource must
// then be deleted before its replacement can take the name.
func (n naming) given(inputs property.Map) bool {
	return n.property != "" && inputs.Get(n.property).IsString() && !defaulted(inputs, n.property)
}

func defaulted(inputs property.Map, name string) bool {
	list := inputs.Get(defaultsKey)
	if !list.IsArray() {
		return false
	}
	for _, item := range list.AsArray().All {
		if item.IsString() && item.AsString() == name {
			return true
		}
	}
	return false
}

// complete makes the name of a resource that was given a prefix.
func (n naming) complete(planned property.Map) property.Map {
	prefix := planned.Get(n.property + "Prefix")
	if n.property == "" || !prefix.IsString() || planned.Get(n.property).IsString() {
		return planned
	}
	return planned.Set(n.property, property.New(uniqueName(prefix.AsString())))
}

var nameCounter atomic.Uint32

// uniqueName appends the time and a counter, 26 digits in all, as the real
// plugin does.
func uniqueName(prefix string) string {
	stamp := strings.ReplaceAll(time.Now().UTC().Format("20060102150405.0000"), ".", "")
	return fmt.Sprintf("%s%s%08x", prefix, stamp, nameCounter.Add(1))
}
