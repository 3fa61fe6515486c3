package host

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Every file that the metadata names is there, with the sum that it names.
func TestRepository(t *testing.T) {
	t.Parallel()
	r, err := newRepository()
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) []byte {
		t.Helper()
		recorder := httptest.NewRecorder()
		r.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if recorder.Code != http.StatusOK {
			t.Fatalf("%s: status %d", path, recorder.Code)
		}
		return recorder.Body.Bytes()
	}
	var index indexXML
	if err := xml.Unmarshal(get("/core/repodata/repomd.xml"), &index); err != nil {
		t.Fatal(err)
	}
	content := get("/core/" + index.Data.Location.Href)
	if got, want := sum(content), index.Data.Checksum.Value; got != want {
		t.Errorf("sum of %s: got %s, want %s", index.Data.Location.Href, got, want)
	}
	var primary primaryXML
	if err := xml.Unmarshal(content, &primary); err != nil {
		t.Fatal(err)
	}
	if got, want := primary.Package.Name, "fuse3-libs"; got != want {
		t.Errorf("package: got %s, want %s", got, want)
	}
	content = get("/core/" + primary.Package.Location.Href)
	if got, want := sum(content), primary.Package.Checksum.Value; got != want {
		t.Errorf("sum of %s: got %s, want %s", primary.Package.Location.Href, got, want)
	}
	if !bytes.HasPrefix(content, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("%s is no RPM", primary.Package.Location.Href)
	}
	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/core/other.rpm", nil))
	if got, want := recorder.Code, http.StatusNotFound; got != want {
		t.Errorf("a file that is not there: got status %d, want %d", got, want)
	}
}
