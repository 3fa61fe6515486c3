// Package imds is the EC2 instance metadata service, version 2: a session
// token by PUT, then the instance's metadata by GET.
//
// One Handler can serve every instance of a region, telling them apart by the
// request, as the real service does behind 169.254.169.254, or be bound to one.
// Not modelled: the hop limit, version 1, the signature of the instance
// identity document, the lifecycle state in an Auto Scaling Group.
package imds

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcfs/pulumi-etcfs/tests/region/ec2"
)

// Handler serves the metadata of instances.
type Handler struct {
	// Instance returns the instance that a request came from, nil for none,
	// which is answered 404.
	Instance func(*http.Request) *ec2.MachineSpec

	mu     sync.Mutex
	tokens map[string]session
}

type session struct {
	instance *ec2.MachineSpec
	expires  time.Time
}

// For serves one instance, whoever asks.
func For(instance *ec2.MachineSpec) *Handler {
	return &Handler{Instance: func(*http.Request) *ec2.MachineSpec { return instance }}
}

// BySource serves the instance that lookup knows under a request's source
// address.
func BySource(lookup func(netip.Addr) *ec2.MachineSpec) *Handler {
	return &Handler{Instance: func(r *http.Request) *ec2.MachineSpec {
		source, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return nil
		}
		return lookup(source.Addr().Unmap())
	}}
}

const (
	tokenPath = "/latest/api/token"
	tokenTTL  = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	token     = "X-Aws-Ec2-Metadata-Token"
	// maxTTL is the longest session: six hours.
	maxTTL = 21600
)

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "EC2ws")
	instance := h.Instance(r)
	if instance == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	if r.URL.Path == tokenPath {
		h.issue(w, r, instance)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed)
		return
	}
	h.mu.Lock()
	s, ok := h.tokens[r.Header.Get(token)]
	h.mu.Unlock()
	// A token is good for the instance that asked for it only.
	if !ok || s.instance != instance || time.Now().After(s.expires) {
		refuse(w, http.StatusUnauthorized)
		return
	}
	w.Header().Set(tokenTTL, strconv.Itoa(int(time.Until(s.expires).Seconds())))
	text, ok, err := lookup(instance, r.URL.Path)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case !ok:
		refuse(w, http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(text)) // a caller that hung up is its own concern
	}
}

func (h *Handler) issue(w http.ResponseWriter, r *http.Request, instance *ec2.MachineSpec) {
	// The real service refuses requests that came through a proxy.
	if r.Method != http.MethodPut || r.Header.Get("X-Forwarded-For") != "" {
		refuse(w, http.StatusForbidden)
		return
	}
	seconds, err := strconv.Atoi(r.Header.Get(tokenTTL))
	if err != nil || seconds < 1 || seconds > maxTTL {
		refuse(w, http.StatusBadRequest)
		return
	}
	value := rand.Text() + rand.Text()
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens == nil {
		h.tokens = map[string]session{}
	}
	for old, s := range h.tokens {
		if now.After(s.expires) {
			delete(h.tokens, old)
		}
	}
	h.tokens[value] = session{instance, now.Add(time.Duration(seconds) * time.Second)}
	w.Header().Set(tokenTTL, strconv.Itoa(seconds))
	_, _ = w.Write([]byte(value)) // a caller that hung up is its own concern
}

func refuse(w http.ResponseWriter, status int) {
	http.Error(w, fmt.Sprintf("%d - %s", status, http.StatusText(status)), status)
}

// lookup finds the text of a path: a value, or the listing of a folder.
func lookup(i *ec2.MachineSpec, path string) (text string, ok bool, err error) {
	version, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok || version != "latest" && version != "2021-03-23" {
		return "", false, nil
	}
	if rest == "user-data" {
		return string(i.UserData), i.UserData != nil, nil
	}
	values, err := metadata(i)
	if err != nil {
		return "", false, err
	}
	if i.RoleName != "" && rest == credentialsPath+i.RoleName {
		text, err := credentials(i)
		return text, err == nil, err
	}
	if text, ok := values[strings.TrimSuffix(rest, "/")]; ok {
		return text, true, nil
	}
	listing := list(values, strings.TrimSuffix(rest, "/")+"/")
	return strings.Join(listing, "\n"), len(listing) > 0, nil
}

// list names what is directly below a folder, folders with a slash.
func list(values map[string]string, folder string) []string {
	var names []string
	for path := range values {
		if below, ok := strings.CutPrefix(path, folder); ok {
			name, _, deeper := strings.Cut(below, "/")
			if deeper {
				name += "/"
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func metadata(i *ec2.MachineSpec) (map[string]string, error) {
	document, err := json.MarshalIndent(map[string]any{
		"accountId": i.AccountID, "architecture": "x86_64", "availabilityZone": i.AvailabilityZone,
		"imageId": i.ImageID, "instanceId": i.InstanceID, "instanceType": i.InstanceType,
		"privateIp": i.PrivateIP, "region": i.Region, "version": "2017-09-30",
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the identity document: %w", err)
	}
	values := map[string]string{
		"meta-data/ami-id":                      i.ImageID,
		"meta-data/hostname":                    "ip-" + strings.ReplaceAll(i.PrivateIP, ".", "-") + "." + i.Region + ".compute.internal",
		"meta-data/instance-id":                 i.InstanceID,
		"meta-data/instance-type":               i.InstanceType,
		"meta-data/local-ipv4":                  i.PrivateIP,
		"meta-data/placement/availability-zone": i.AvailabilityZone,
		"meta-data/placement/region":            i.Region,
		"meta-data/services/domain":             "amazonaws.com",
		"meta-data/services/partition":          "aws",
		"dynamic/instance-identity/document":    string(document),
	}
	for name, value := range i.Tags {
		values["meta-data/tags/instance/"+name] = value
	}
	if i.RoleName != "" {
		info, err := json.MarshalIndent(map[string]string{
			"Code": "Success", "LastUpdated": now(), "InstanceProfileId": "AIPA" + strings.ToUpper(strings.TrimPrefix(i.InstanceID, "i-")),
			"InstanceProfileArn": fmt.Sprintf("arn:aws:iam::%s:instance-profile/%s", i.AccountID, i.RoleName),
		}, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("encode the profile: %w", err)
		}
		values["meta-data/iam/info"] = string(info)
		values[credentialsPath+i.RoleName] = "" // made when asked for
	}
	return values, nil
}

const credentialsPath = "meta-data/iam/security-credentials/"

func credentials(i *ec2.MachineSpec) (string, error) {
	c, err := i.Credentials()
	if err != nil {
		return "", fmt.Errorf("get credentials of role %s: %w", i.RoleName, err)
	}
	secret, err := json.MarshalIndent(map[string]string{
		"Code": "Success", "LastUpdated": now(), "Type": "AWS-HMAC",
		"AccessKeyId": c.AccessKeyID, "SecretAccessKey": c.SecretAccessKey, "Token": c.Token,
		"Expiration": c.Expiration.UTC().Format(time.RFC3339),
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the credentials: %w", err)
	}
	return string(secret), nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
