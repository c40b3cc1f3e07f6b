// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
)

// poolEstimator measures as the rest of Collage does (workers.Measuring), where TVM's own estimator compiles with nvcc
// and loads the result into this process.
type poolEstimator struct{ *workers.Measuring }

// newPoolEstimator starts no worker yet. The native target is compiled for; without one, any processor.
func newPoolEstimator(cfg settings.Config, targets []*target) (*poolEstimator, error) {
	cfg.Target = "llvm"
	if native := slices.IndexFunc(targets, func(t *target) bool { return !t.external }); native >= 0 {
		cfg.Target = targets[native].object.Text()
	}
	m, err := workers.OpenMeasuring(cfg)
	if err != nil {
		return nil, err
	}
	return &poolEstimator{m}, nil
}

// Estimate is not asked: the pool measures functions, not modules.
func (e *poolEstimator) Estimate(_, _ *bridge.Object) (float64, error) {
	return 0, errors.New("the worker pool measures candidates, not modules")
}

// job is an option of a function to be measured; symbol is its name where it is an external code generator's.
type job struct {
	f      *function
	o      *option
	symbol string
}

// estimate measures options' regions: what they take, in seconds. Several are built side by side.
func (e *poolEstimator) estimate(jobs []job) ([]float64, error) {
	requests := make([]cost.Request, len(jobs))
	for i, j := range jobs {
		var err error
		if requests[i], err = e.request(j); err != nil {
			return nil, err
		}
	}
	costs, err := e.Pool.Estimate(context.Background(), requests)
	if err != nil {
		return nil, err
	}
	seconds := make([]float64, len(costs))
	for i, c := range costs {
		seconds[i] = c.Estimate() / 1e3
	}
	return seconds, nil
}

func (e *poolEstimator) request(j job) (cost.Request, error) {
	f, o := j.f, j.o
	function, err := o.workload.flat(f.graph, j.symbol)
	if err != nil {
		return cost.Request{}, err
	}
	defer function.Release()
	v, err := bridge.Global("node.SaveJSON", function)
	if err != nil {
		return cost.Request{}, err
	}
	text, err := v.Str()
	if err != nil {
		return cost.Request{}, err
	}
	backend := "tvm"
	composites := make([]string, len(o.group.Parts))
	if o.external() {
		backend = o.target.name
		for i, p := range o.group.Parts {
			composites[i] = p.Composite
		}
	}
	digest := sha256.Sum256([]byte(o.group.Label + "\x00" +
		f.graph.Key(o.nodes, o.nodes[len(o.nodes)-1], relay.KeyOptions{})))
	key := cost.Key{Structure: "dropin:" + hex.EncodeToString(digest[:]), Backend: backend,
		Composite: strings.Join(composites, "+"), Environment: e.Environment}
	workload := &cost.Workload{Function: text, Compiler: o.workload.compiler}
	return cost.Request{Key: key, Label: o.group.Label + " on " + o.target.name,
		Build: func() (*cost.Workload, error) { return workload, nil }}, nil
}
