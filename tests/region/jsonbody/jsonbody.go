// Package jsonbody reads the bodies of JSON requests into structures.
//
// A parameter that no field takes is refused: what a service does not model it
// must not ignore.
package jsonbody

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/etcfs/pulumi-etcfs/tests/region/api"
)

// Decode reads the body of a call, which may be empty, into a pointer to a
// structure. Its errors are the client's: the service's own code for an invalid
// parameter, and SerializationException.
func Decode(c *api.Call, invalidParameter string, into any) error {
	if len(c.Body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(c.Body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		return nil
	}
	// encoding/json has no type for this error.
	if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
		return api.Errorf(http.StatusBadRequest, invalidParameter, "this region's %s does not have the parameter %s", c.Action, field)
	}
	return api.Errorf(http.StatusBadRequest, "SerializationException", "%v", err)
}
