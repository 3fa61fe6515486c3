package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// The header that tells a Smithy protocol, and its value for RPC v2 in CBOR.
const (
	smithyProtocol = "Smithy-Protocol"
	rpcV2CBOR      = "rpc-v2-cbor"
)

// parseCBOR reads the operation out of the path
// (/service/SERVICE/operation/OPERATION), and makes JSON of the body.
func (c *Call) parseCBOR() error {
	c.Action = path.Base(c.Request.URL.Path)
	if len(c.Body) == 0 {
		return nil
	}
	malformed := func(err error) error { return Errorf(http.StatusBadRequest, "SerializationException", "%v", err) }
	mode, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any]()}.DecMode()
	if err != nil {
		return fmt.Errorf("prepare to read CBOR: %w", err)
	}
	var body any
	if err := mode.Unmarshal(c.Body, &body); err != nil {
		return malformed(err)
	}
	if c.Body, err = json.Marshal(body); err != nil {
		return malformed(err)
	}
	return nil
}

func (c *Call) writeCBOR(w http.ResponseWriter, status int, value any) {
	body, err := cbor.Marshal(value)
	if err != nil {
		http.Error(w, fmt.Sprintf("encode the result of %s: %v", c.Action, err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/cbor")
	w.Header().Set(smithyProtocol, rpcV2CBOR)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that hung up is its own concern
}
