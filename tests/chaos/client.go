package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcfs/pulumi-etcfs/bootstrap/etcd"
	"github.com/etcfs/pulumi-etcfs/tests/fault"
	"github.com/etcfs/pulumi-etcfs/tests/invariant"
)

const (
	// clients is how many write and read at the same time, on as many keys.
	clients = 3
	// operationPatience is how long one operation may take before its outcome
	// is unknown.
	operationPatience = 3 * time.Second
	operationPause    = 20 * time.Millisecond
	endpointsPause    = 500 * time.Millisecond
)

// client writes and reads until ctx ends, and records every operation. Each
// value is written once.
func client(ctx context.Context, w *fault.World, r *recorder, number int) error {
	connection, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints(w), Context: ctx, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("connect client %d: %w", number, err)
	}
	defer connection.Close()
	renewed := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		if time.Since(renewed) > endpointsPause {
			connection.SetEndpoints(endpoints(w)...)
			renewed = time.Now()
		}
		o := invariant.Operation{
			Client: number, Key: fmt.Sprintf("chaos/%d", (number+i/2)%clients), Write: i%2 == 0,
			Value: fmt.Sprintf("%d.%d", number, i),
		}
		operate(ctx, connection, &o)
		if ctx.Err() == nil || !o.Known {
			r.operation(o)
		}
		pause(ctx, operationPause)
	}
	return nil
}

func operate(ctx context.Context, connection *clientv3.Client, o *invariant.Operation) {
	ctx, cancel := context.WithTimeout(ctx, operationPatience)
	defer cancel()
	o.From = time.Now()
	if o.Write {
		_, err := connection.Put(ctx, o.Key, o.Value)
		o.To, o.Known = time.Now(), err == nil
		return
	}
	o.Value = ""
	response, err := connection.Get(ctx, o.Key)
	o.To, o.Known = time.Now(), err == nil
	if err == nil && len(response.Kvs) > 0 {
		o.Value = string(response.Kvs[0].Value)
	}
}

// endpoints are the client addresses of the nodes that exist.
func endpoints(w *fault.World) []string {
	var list []string
	for _, instance := range w.Nodes() {
		if instance.PrivateIP != "" {
			list = append(list, etcd.ClientURL(instance.PrivateIP))
		}
	}
	return list
}

// measure is how the writing clients fared in an interval.
type measure struct {
	writes, failed int
	// pause is the longest time between two writes that succeeded.
	pause time.Duration
}

func measured(h *invariant.History, from, to time.Time) measure {
	var m measure
	last := from
	for _, o := range h.Operations {
		if !o.Write || o.To.Before(from) || o.From.After(to) {
			continue
		}
		m.writes++
		if !o.Known {
			m.failed++
			continue
		}
		m.pause = max(m.pause, o.To.Sub(last))
		if o.To.After(last) {
			last = o.To
		}
	}
	return m
}

func (m measure) String() string {
	return fmt.Sprintf("longest pause of the writing clients %s, %d of %d writes failed", m.pause.Round(time.Millisecond), m.failed, m.writes)
}
