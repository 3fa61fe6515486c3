package host

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestFrontMovesBucketsIntoThePath(t *testing.T) {
	t.Parallel()
	f := &front{region: "eu-west-1", logger: slog.New(slog.DiscardHandler)}
	ask := func(url string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		f.serveAWS(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
		return recorder
	}
	if got, want := ask("https://ec2.eu-west-1.amazonaws.com/").Code, http.StatusServiceUnavailable; got != want {
		t.Errorf("without a region: got status %d, want %d", got, want)
	}
	f.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.EscapedPath())) }))
	for url, want := range map[string]string{
		"https://s3.eu-west-1.amazonaws.com/bucket/key":        "/bucket/key",
		"https://bucket.s3.eu-west-1.amazonaws.com/key":        "/bucket/key",
		"https://bucket.s3.eu-west-1.amazonaws.com/a%2Fb/c":    "/bucket/a%2Fb/c",
		"https://dynamodb.eu-west-1.amazonaws.com/":            "/",
		"https://bucket.s3.us-east-1.amazonaws.com/key":        "/key",
		"https://dotted.bucket.s3.eu-west-1.amazonaws.com/key": "/dotted.bucket/key",
	} {
		if got := ask(url).Body.String(); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}
