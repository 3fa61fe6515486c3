package jsonbody_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/jsonbody"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		body, name, code, message string
	}{
		{``, "", "", ""},
		{`{}`, "", "", ""},
		{`{"Name":"demo"}`, "demo", "", ""},
		{`{"Name":"demo","IndexName":"x"}`, "", "ValidationException", `Scan does not have the parameter "IndexName"`},
		{`{"Nested":{"Other":1}}`, "", "ValidationException", `"Other"`},
		{`{"Name":1}`, "", "SerializationException", "number"},
		{`{`, "", "SerializationException", "EOF"},
	} {
		var in struct {
			Name   string
			Nested struct{ Known int }
		}
		err := jsonbody.Decode(&api.Call{Action: "Scan", Body: []byte(test.body)}, "ValidationException", &in)
		if test.code == "" {
			if err != nil || in.Name != test.name {
				t.Errorf("%s: got %q (%v), want %q", test.body, in.Name, err, test.name)
			}
			continue
		}
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != test.code || !strings.Contains(e.Message, test.message) {
			t.Errorf("%s: got %v, want a %s with %q", test.body, err, test.code, test.message)
		}
	}
}
