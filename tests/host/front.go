package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// front is what machines find of the world outside: the metadata service, a
// name server, the AWS APIs under their names, the distribution's packages.
type front struct {
	logger    *slog.Logger
	region    string
	authority *authority
	names     net.PacketConn
	servers   []*http.Server
	// aws answers the AWS APIs once there is a region.
	aws atomic.Pointer[http.Handler]
}

func openFront(ctx context.Context, region string, logger *slog.Logger, metadata http.Handler) (_ *front, err error) {
	f := &front{logger: logger, region: region}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.authority, err = newAuthority("*."+region+"."+domain, "*.s3."+region+"."+domain); err != nil {
		return nil, err
	}
	packages, err := newRepository()
	if err != nil {
		return nil, err
	}
	var listening net.ListenConfig
	if f.names, err = listening.ListenPacket(ctx, "udp4", net.JoinHostPort(gatewayAddress, "53")); err != nil {
		return nil, fmt.Errorf("serve names: %w", err)
	}
	go serveNames(f.names)
	for _, s := range []struct {
		address, port string
		handler       http.Handler
		tls           *tls.Config
	}{
		{metadataAddress, "80", metadata, nil},
		{gatewayAddress, "80", packages, nil},
		{gatewayAddress, "443", http.HandlerFunc(f.serveAWS), f.authority.config},
	} {
		listener, err := listening.Listen(ctx, "tcp4", net.JoinHostPort(s.address, s.port))
		if err != nil {
			return nil, fmt.Errorf("serve machines: %w", err)
		}
		if s.tls != nil {
			listener = tls.NewListener(listener, s.tls)
		}
		server := &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
		f.servers = append(f.servers, server)
		go server.Serve(listener) //nolint:errcheck // always ErrServerClosed, from close
	}
	return f, nil
}

func (f *front) serve(aws http.Handler) { f.aws.Store(&aws) }

// serveAWS answers a call by the name of its service. A bucket in the host's
// name moves into the path, where the region's S3 expects it.
func (f *front) serveAWS(w http.ResponseWriter, r *http.Request) {
	handler := f.aws.Load()
	if handler == nil {
		http.Error(w, "there is no region yet", http.StatusServiceUnavailable)
		return
	}
	if bucket, ok := strings.CutSuffix(r.Host, ".s3."+f.region+"."+domain); ok {
		r.URL.Path = "/" + bucket + r.URL.Path
		if r.URL.RawPath != "" {
			r.URL.RawPath = "/" + bucket + r.URL.RawPath
		}
	}
	(*handler).ServeHTTP(w, r)
}

func (f *front) close() error {
	var problems []error
	if f.names != nil {
		problems = append(problems, f.names.Close())
	}
	for _, server := range f.servers {
		problems = append(problems, server.Close())
	}
	return errors.Join(problems...)
}
