// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// Estimator says what a module's main costs on a target (relay.collage.CostEstimator).
type Estimator interface {
	// Estimate gives seconds; +Inf for what cannot be done. The module and the target stay the caller's.
	Estimate(mod, target *bridge.Object) (float64, error)
}

// mangled are the C++ methods Cost Estimate(const IRModule&, const Target&) const of TVM's estimators. They are
// exported, and no packed function calls them.
var mangled = map[string]string{
	"relay.collage.MockCostEstimator":   "_ZNK3tvm5relay7collage21MockCostEstimatorNode8EstimateERKNS_8IRModuleERKNS_6TargetE",
	"relay.collage.CustomCostEstimator": "_ZNK3tvm5relay7collage23CustomCostEstimatorNode8EstimateERKNS_8IRModuleERKNS_6TargetE",
	"relay.collage.CostEstimator":       "_ZNK3tvm5relay7collage17CostEstimatorNode8EstimateERKNS_8IRModuleERKNS_6TargetE",
}

// tvmEstimator is an estimator object of TVM's.
type tvmEstimator struct {
	object *bridge.Object
	method *bridge.Function
}

// newTVMEstimator takes an object of one of TVM's classes of estimators.
func newTVMEstimator(object *bridge.Object) (*tvmEstimator, error) {
	key := object.TypeKey()
	symbol := mangled[key]
	if symbol == "" {
		return nil, fmt.Errorf("TypeError: cost_estimator is a %s; CollagePartition takes a CostEstimator, a "+
			"MockCostEstimator, "+
			"a CustomCostEstimator or a function of a module and a target", key)
	}
	method, err := bridge.NewBinaryMethod(symbol)
	if err != nil {
		return nil, err
	}
	return &tvmEstimator{object, method}, nil
}

func (e *tvmEstimator) Estimate(mod, target *bridge.Object) (float64, error) {
	v, err := e.method.Invoke(e.object, mod, target)
	if err != nil {
		if e.mock() && strings.Contains(err.Error(), "non-trivial distinct candidates") {
			return 0, fmt.Errorf("%w: %w", errExhausted, err)
		}
		return 0, err
	}
	return v.Float()
}

// mock says that the estimator is TVM's mock, of whose costs the law is known: an operator that has n others of its
// group before it costs 0.9^n of what it costs alone.
func (e *tvmEstimator) mock() bool { return e.object.TypeKey() == "relay.collage.MockCostEstimator" }

// functionEstimator is a packed function of a module and a target.
type functionEstimator struct{ function *bridge.Function }

func (e functionEstimator) Estimate(mod, target *bridge.Object) (float64, error) {
	v, err := e.function.Invoke(mod, target)
	if err != nil {
		return 0, err
	}
	return v.Float()
}

// errExhausted says that the estimator gives no more estimates.
var errExhausted = errors.New("the cost estimator gives no more estimates")

// measureTogether has workers measure what is not known of options, so that they build some while they time others.
// What another estimator gives is asked for one by one.
func (s *partitioning) measureTogether(f *function, options []*option) error {
	pool, ok := s.estimator.(*poolEstimator)
	if !ok {
		return nil
	}
	type computation struct {
		*entry
		target string
	}
	var jobs []job
	var into []computation
	for _, o := range options {
		if err := s.prepare(f, o); err != nil {
			return err
		}
		e, err := s.names.entry(o.workload, o.group.Label)
		if err != nil {
			return err
		}
		one := computation{e, o.target.name}
		if _, known := e.seconds[one.target]; known || slices.Contains(into, one) {
			continue
		}
		jobs, into = append(jobs, job{f, o, e.symbol}), append(into, one)
	}
	seconds, err := pool.estimate(jobs)
	if err != nil {
		return err
	}
	for i, one := range into {
		one.seconds[one.target] = seconds[i]
	}
	s.report.Estimated += len(jobs)
	return nil
}

// know finds out what an option costs.
func (s *partitioning) know(f *function, o *option) error {
	if o.known {
		return nil
	}
	if err := s.prepare(f, o); err != nil {
		return err
	}
	e, err := s.names.entry(o.workload, o.group.Label)
	if err != nil {
		return err
	}
	seconds, ok := e.seconds[o.target.name]
	if !ok {
		if seconds, err = s.ask(f, o, e.symbol); err != nil {
			return err
		}
		e.seconds[o.target.name] = seconds
	}
	o.seconds, o.known = seconds, true
	return nil
}

func (s *partitioning) ask(f *function, o *option, symbol string) (float64, error) {
	if pool, ok := s.estimator.(*poolEstimator); ok {
		s.report.Estimated++
		seconds, err := pool.estimate([]job{{f, o, symbol}})
		if err != nil {
			return 0, err
		}
		return seconds[0], nil
	}
	mod, err := o.workload.module(f.graph, symbol)
	if err != nil {
		return 0, fmt.Errorf("the module of candidate %s: %w", o.group.Label, err)
	}
	defer mod.Release()
	seconds, err := s.estimator.Estimate(mod, o.target.object)
	if err != nil {
		return 0, err
	}
	s.report.Estimated++
	if impossible(seconds) {
		return math.Inf(1), nil
	}
	return seconds, nil
}

// prepare makes the option's function.
func (s *partitioning) prepare(f *function, o *option) (err error) {
	if o.workload == nil {
		o.workload, err = newWorkload(f.graph, o.group.Nodes, o.group.Parts, o.target.compiler())
	}
	return err
}
