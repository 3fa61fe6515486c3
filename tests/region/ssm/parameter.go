package ssm

import (
	"context"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

type parameter struct {
	Name, Type, Value, ARN, DataType string
	Version                          int
	LastModifiedDate                 float64
}

// parameterARN has no account: public parameters are AWS's.
func (m *Manager) parameterARN(name string) string {
	return "arn:aws:ssm:" + m.config.Region + "::parameter" + name
}

func (m *Manager) parameter(name string) (parameter, bool) {
	value, ok := m.config.Parameters[name]
	return parameter{
		Name: name, Type: "String", Value: value, ARN: m.parameterARN(name), DataType: "text", Version: 1,
		LastModifiedDate: seconds(time.Unix(0, 0)),
	}, ok
}

func (m *Manager) getParameter(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Name           string
		WithDecryption bool
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := c.AuthorizeOn(m.parameterARN(in.Name)); err != nil {
		return nil, err
	}
	found, ok := m.parameter(in.Name)
	if !ok {
		return nil, refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	return struct{ Parameter parameter }{found}, nil
}

func (m *Manager) getParameters(_ context.Context, c *api.Call) (any, error) {
	var in struct {
		Names          []string
		WithDecryption bool
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if len(in.Names) < 1 || len(in.Names) > 10 {
		return nil, invalid("Names must have 1 to 10 members")
	}
	out := struct {
		Parameters        []parameter
		InvalidParameters []string
	}{[]parameter{}, []string{}}
	for _, name := range in.Names {
		if err := c.AuthorizeOn(m.parameterARN(name)); err != nil {
			return nil, err
		}
		if found, ok := m.parameter(name); ok {
			out.Parameters = append(out.Parameters, found)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}
