// SPDX-License-Identifier: Apache-2.0

// Package pass is CollagePartition: it reads a Relay module, asks the backends what they can take, learns what that
// costs, chooses, and writes the choice back as BYOC annotations.
//
// What comes in: an IRModule and a settings.Config. What goes out: an IRModule in which the regions of the backends are
// functions with Compiler and Composite attributes, and the plan that says what was chosen and why. Here is what
// callers see, in Go and as TVM's packed functions; each step is a package below this one (docs/architecture.md lists
// them), and plan and report hold and show the result.
package pass

import (
	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// Partition places the operators of a module on backends. The module should have gone through normalise.Normalise. It
// is not changed; the new module has the regions as functions of their own. Functions that have a Compiler attribute,
// and what they hold, are left as they are.
//
// On an error the module is nil; costs that were measured before it are in the store. Errors that are the caller's to
// mend are *settings.OptionError, *byoc.UnknownBackendError, *settings.UnusableError and *placing.UncoveredError.
//
// What comes out is the fastest of what was found, of each backend alone and of plain TVM, run as whole networks: what
// decide.Partition keeps. Where nothing is to be run, with Config.Only or Config.Estimator, it is decide.Parts.
func Partition(mod *bridge.Object, cfg settings.Config) (placed *bridge.Object, made *plan.Plan, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	if err := cfg.CheckStrict(); err != nil {
		return nil, nil, err
	}
	end, err := cfg.Record("collage.partition")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = end(err) }()
	switch {
	case cfg.Estimator != nil && cfg.Level == settings.GraphLevel:
		return nil, nil, &settings.OptionError{Option: "level",
			Reason: "is graph, which measures; costs that are given go with level=\"operator\""}
	case cfg.RunsNothing():
		return decide.Parts(mod, cfg)
	}
	return decide.Partition(mod, cfg)
}
