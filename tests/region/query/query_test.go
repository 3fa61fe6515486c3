package query_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
	"github.com/etcfs/pulumi-etcfs/tests/region/query"
)

type disk struct {
	Size   int
	Shared *bool
}

type request struct {
	Name   string `query:"TheName,required"`
	Count  *int
	Force  bool
	IDs    []string `query:"Id"`
	Disks  []disk   `query:"Disk"`
	Nested *disk
	Kept   string `query:"-"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	yes, three := true, 3
	tests := map[string]struct {
		params api.Params
		want   request
		err    string
	}{
		"scalars": {
			params: api.Params{"Action": "X", "Version": "1", "TheName": "n", "Count": "3", "Force": "true"},
			want:   request{Name: "n", Count: &three, Force: true},
		},
		"flat lists": {
			params: api.Params{"TheName": "n", "Id.1": "a", "Id.2": "b", "Disk.1.Size": "4", "Disk.1.Shared": "true"},
			want:   request{Name: "n", IDs: []string{"a", "b"}, Disks: []disk{{Size: 4, Shared: &yes}}},
		},
		"member lists": {
			params: api.Params{"TheName": "n", "Id.member.1": "a", "Nested.Size": "3"},
			want:   request{Name: "n", IDs: []string{"a"}, Nested: &disk{Size: 3}},
		},
		"missing": {params: api.Params{"Count": "3"}, err: "MissingParameter: The request must contain the parameter TheName"},
		"unknown": {
			params: api.Params{"TheName": "n", "Disk.1.Speed": "1"},
			err:    "UnknownParameter: The parameter Disk.1.Speed is not recognized by this region",
		},
		"no number": {
			params: api.Params{"TheName": "n", "Count": "three"},
			err:    `InvalidParameterValue: Invalid value 'three' for Count: strconv.Atoi: parsing "three": invalid syntax`,
		},
		"hole in a list": {
			params: api.Params{"TheName": "n", "Id.2": "a"},
			err:    "InvalidParameterValue: The list Id has no member 1",
		},
		"untagged fields only": {
			params: api.Params{"TheName": "n", "Kept": "a"},
			err:    "UnknownParameter: The parameter Kept is not recognized by this region",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got request
			err := query.Decode(test.params, &got)
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Fatalf("got error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("got the other way (-want +got):\n%s", diff)
			}
		})
	}
}
