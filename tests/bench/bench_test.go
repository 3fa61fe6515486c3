// Package bench holds the benchmarks of what `make build` leaves in bin/.
package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// bin is where `make build` leaves the binaries.
const bin = "../../bin"

// What is aimed at; nothing fails above it.
const (
	targetStart   = 150 * time.Millisecond
	targetSchema  = 500 * time.Millisecond
	targetPackage = 8 << 20 // bytes
)

// maxSchema is how much a gRPC message with a schema may hold.
const maxSchema = 64 << 20

// BenchmarkGetSchema measures the plugin as the engine uses it first: from the
// start of its process until it listens (start), and until it has told its
// schema (schema).
func BenchmarkGetSchema(b *testing.B) {
	plugin := filepath.Join(bin, "pulumi-resource-etcfs")
	if _, err := os.Stat(plugin); errors.Is(err, os.ErrNotExist) {
		b.Skipf("%s is not there: run make build", filepath.Base(plugin))
	}
	var starts, schemas time.Duration
	var size int
	for b.Loop() {
		begun := time.Now()
		command := exec.CommandContext(b.Context(), plugin)
		stdout, err := command.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		var stderr bytes.Buffer
		command.Stderr = &stderr
		if err := command.Start(); err != nil {
			b.Fatal(err)
		}
		stop := func() {
			_ = command.Process.Kill() // it does not end by itself
			_ = command.Wait()         // says that it was killed
		}
		port, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			stop()
			b.Fatalf("the plugin told no port: %v\n%s", err, &stderr)
		}
		starts += time.Since(begun)
		schema, err := getSchema(b.Context(), "127.0.0.1:"+strings.TrimSpace(port))
		if err != nil {
			stop()
			b.Fatalf("%v\n%s", err, &stderr)
		}
		schemas += time.Since(begun)
		size = len(schema)
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	n := float64(b.N)
	b.ReportMetric(starts.Seconds()*1000/n, "ms/start")
	b.ReportMetric(schemas.Seconds()*1000/n, "ms/schema")
	b.ReportMetric(starts.Seconds()/n/targetStart.Seconds(), "start/target")
	b.ReportMetric(schemas.Seconds()/n/targetSchema.Seconds(), "schema/target")
	b.ReportMetric(float64(size)/(1<<10), "KiB")
}

// BenchmarkSizes tells the sizes of what is uploaded to a cluster: the package
// of the graceful-leave function, and the binary that every node downloads.
func BenchmarkSizes(b *testing.B) {
	for _, file := range []struct {
		name   string
		target float64
	}{{"graceful-leave.zip", targetPackage}, {"etcfs-bootstrap", 0}} {
		b.Run(file.name, func(b *testing.B) {
			info, err := os.Stat(filepath.Join(bin, file.name))
			if errors.Is(err, os.ErrNotExist) {
				b.Skipf("%s is not there: run make build", file.name)
			}
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(0, "ns/op") // nothing is timed
			b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
			if file.target != 0 {
				b.ReportMetric(float64(info.Size())/file.target, "size/target")
			}
		})
	}
}

func getSchema(ctx context.Context, address string) (string, error) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxSchema)))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	response, err := pulumirpc.NewResourceProviderClient(connection).GetSchema(ctx, &pulumirpc.GetSchemaRequest{})
	if err != nil {
		return "", err
	}
	return response.GetSchema(), nil
}
