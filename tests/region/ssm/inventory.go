package ssm

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

// online returns the machine of an instance that commands reach.
func (m *Manager) online(i ec2.Instance) (ec2.Machine, bool) {
	switch i.State {
	case ec2.StatePending, ec2.StateRunning, ec2.StateStopped:
		machine, ok := m.config.Instances.Machine(i.ID)
		return machine, ok && machine.AgentOnline()
	}
	return nil, false
}

// filter narrows DescribeInstanceInformation, in its newer form.
type filter struct {
	Key    string
	Values []string
}

func (m *Manager) describeInstanceInformation(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Filters                       []filter
		InstanceInformationFilterList []struct {
			Key      string   `json:"key"`
			ValueSet []string `json:"valueSet"`
		}
		MaxResults *int
		NextToken  string
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(); err != nil {
		return nil, err
	}
	start, limit, err := page(in.NextToken, in.MaxResults, 5, 10)
	if err != nil {
		return nil, err
	}
	for _, old := range in.InstanceInformationFilterList {
		in.Filters = append(in.Filters, filter{old.Key, old.ValueSet})
	}
	type information struct {
		InstanceID       string `json:"InstanceId"`
		PingStatus       string
		LastPingDateTime float64
		AgentVersion     string
		PlatformType     string
		PlatformName     string
		PlatformVersion  string
		ResourceType     string
		IPAddress        string
		ComputerName     string
	}
	all := []information{}
	for _, i := range m.managed() {
		described := information{
			InstanceID: i.ID, PingStatus: "ConnectionLost", LastPingDateTime: seconds(time.Now()), AgentVersion: "3.3.0.0",
			PlatformType: "Linux", PlatformName: "Amazon Linux", PlatformVersion: "2023", ResourceType: "EC2Instance",
			IPAddress: i.PrivateIP, ComputerName: i.ID,
		}
		if _, ok := m.online(i); ok {
			described.PingStatus = "Online"
		}
		matches := true
		for _, f := range in.Filters {
			values := map[string]string{
				"InstanceIds": described.InstanceID, "PingStatus": described.PingStatus, "PlatformTypes": described.PlatformType, "ResourceType": described.ResourceType,
			}
			value, known := values[f.Key]
			if !known {
				return nil, refuse("InvalidInstanceInformationFilterValue", "this region does not filter by %q", f.Key)
			}
			matches = matches && slices.Contains(f.Values, value)
		}
		if matches {
			all = append(all, described)
		}
	}
	var out struct {
		InstanceInformationList []information
		NextToken               string `json:",omitempty"`
	}
	end := min(start+limit, len(all))
	out.InstanceInformationList = all[min(start, end):end]
	if end < len(all) {
		out.NextToken = strconv.Itoa(end)
	}
	return out, nil
}

// managed returns the instances whose agent has registered once and that are
// not terminated, by ID.
func (m *Manager) managed() []ec2.Instance {
	all := m.config.Instances.Instances()
	m.mu.Lock()
	defer m.mu.Unlock()
	var managed []ec2.Instance
	for _, i := range all {
		if _, ok := m.online(i); ok {
			m.registered[i.ID] = true
		}
		if m.registered[i.ID] && i.State != ec2.StateTerminated {
			managed = append(managed, i)
		}
	}
	slices.SortFunc(managed, func(a, b ec2.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return managed
}
