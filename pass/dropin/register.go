// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/settings"
)

// The packed functions that Register registers.
const (
	// PassFunction takes a CompilationConfig, a cost estimator (an object of TVM's, a packed function of a module and a
	// target, or None to measure), whether to write regions as TVM's prototype does, and a settings.Config as JSON that
	// says how to measure. It gives the pass, a tvm.transform.Pass.
	PassFunction = "collage.transform.DropIn"
	// ReportFunction gives the Report of the last run in this process as JSON, or None.
	ReportFunction = "collage.transform.drop_in_report"
)

var lastReport atomic.Pointer[Report]

// Register registers the packed functions above. TVM must be loaded; one without a compiler gets nothing.
func Register() error {
	if !bridge.HasCompiler() {
		return nil
	}
	for name, f := range map[string]func([]bridge.Value) (any, error){
		PassFunction: makePass, TableFunction: giveTable, TableAccepts: tableAccepts,
	} {
		if err := bridge.RegisterFunction(name, true, f); err != nil {
			return err
		}
	}
	return bridge.RegisterFunction(ReportFunction, true, func([]bridge.Value) (any, error) {
		report := lastReport.Load()
		if report == nil {
			return nil, nil
		}
		text, err := json.Marshal(report)
		return string(text), err
	})
}

func makePass(args []bridge.Value) (any, error) {
	if len(args) != 4 {
		return nil, fmt.Errorf("TypeError: %s takes a configuration, an estimator, a flag and options", PassFunction)
	}
	var opts Options
	var err error
	if opts.Config, err = args[0].Object(); err != nil {
		return nil, fmt.Errorf("TypeError: CollagePartition takes a CompilationConfig: %w", err)
	}
	if opts.Estimator, err = estimatorOf(args[1]); err != nil {
		return nil, err
	}
	if opts.OutlineNative, err = args[2].Bool(); err != nil {
		return nil, err
	}
	text, err := args[3].Str()
	if err != nil {
		return nil, err
	}
	if opts.Measure, err = settings.ParseConfig(text); err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	v, err := bridge.Global("transform.PassInfo", 0, "CollagePartition", []string{}, false)
	if err != nil {
		return nil, err
	}
	info, err := v.Object()
	if err != nil {
		return nil, err
	}
	defer info.Release()
	return bridge.Global("transform.MakeModulePass", func(args []bridge.Value) (any, error) {
		mod, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		out, report, err := Partition(mod, opts)
		if err != nil {
			return nil, pass.AsPythonError(err)
		}
		lastReport.Store(report)
		return out, nil
	}, info)
}

func estimatorOf(v bridge.Value) (Estimator, error) {
	if v.IsNil() {
		return nil, nil
	}
	if v.Kind() == bridge.KindFunction {
		function, err := v.Function()
		return functionEstimator{function}, err
	}
	object, err := v.Object()
	if err != nil {
		return nil, fmt.Errorf("TypeError: cost_estimator: %w", err)
	}
	return newTVMEstimator(object)
}
