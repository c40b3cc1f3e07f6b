// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// CompileFunction is the packed function behind collage.compile (Python): it takes a normalised module, a
// settings.Config as JSON, and a call as JSON; it writes the executable and gives an answer as JSON.
const CompileFunction = "collage.compile"

// call is what CompileFunction is asked beside the Config.
type call struct {
	// Out is the executable to write, PlanOut the plan; "" for no plan.
	Out     string `json:"out"`
	PlanOut string `json:"plan_out"`
	// ExecutableMemory is as in Options, in bytes; 0 for no limit.
	ExecutableMemory int64 `json:"memory_limit_executable_bytes"`
	// Plan is one that is built as it is, as JSON; "" to decide. NoVerify does not compare its outputs with TVM's.
	Plan     string `json:"plan"`
	NoVerify bool   `json:"no_verify"`
	// Tried is as in Options.
	Tried map[string]decide.Sizes `json:"tried"`
}

// answer is what CompileFunction gives.
type answer struct {
	Chosen string   `json:"chosen"`
	Why    string   `json:"why"`
	Notes  []string `json:"notes"`
	Bytes  int64    `json:"output_bytes"`
	// Plan is that of the network that was kept, as JSON.
	Plan string `json:"plan"`
}

// Register registers CompileFunction. TVM must be loaded.
func Register() error {
	if !bridge.HasCompiler() {
		return nil
	}
	return bridge.RegisterFunction(CompileFunction, true, func(args []bridge.Value) (any, error) {
		if len(args) != 3 {
			return nil, fmt.Errorf("TypeError: %s takes a module, a configuration and a call", CompileFunction)
		}
		module, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		var texts [2]string
		for i := range texts {
			if texts[i], err = args[i+1].Str(); err != nil {
				return nil, err
			}
		}
		given, err := compileCall(module, texts[0], texts[1])
		if err != nil {
			return nil, pass.AsPythonError(err)
		}
		text, err := json.Marshal(given)
		return string(text), err
	})
}

func compileCall(module *bridge.Object, configText, callText string) (given *answer, err error) {
	config, err := settings.ParseConfig(configText)
	if err != nil {
		return nil, err
	}
	if config, err = pass.WithPassContext(config); err != nil {
		return nil, err
	}
	var what call
	if err := json.Unmarshal([]byte(callText), &what); err != nil {
		return nil, fmt.Errorf("TypeError: %s: the call is not readable: %w", CompileFunction, err)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := config.CheckStrict(); err != nil {
		return nil, err
	}
	switch {
	case config.Only != "":
		return nil, &settings.OptionError{Option: "only",
			Reason: "leaves the graph level nothing to search; it goes with level=\"operator\""}
	case what.ExecutableMemory < 0:
		return nil, &settings.OptionError{Option: "memory_limit_executable", Reason: "is negative"}
	case config.Level == settings.OperatorLevel && what.ExecutableMemory > 0:
		return nil, &settings.OptionError{Option: "memory_limit_executable", Reason: "needs the graph level"}
	}
	end, err := config.Record("collage.compile")
	if err != nil {
		return nil, err
	}
	defer func() { err = end(err) }()
	options := Options{Module: module, Model: config.ModuleName, Output: what.Out, Options: decide.OptionsOf(config)}
	options.ExecutableMemory, options.Tried = what.ExecutableMemory, what.Tried
	var heard func(error) error
	options.Progress, heard = config.Display()
	options.Progress.Record(options.Trace)
	if what.Plan != "" {
		if options.Replay, err = plan.Decode([]byte(what.Plan)); err != nil {
			return nil, &placing.ReplayError{Reason: "it is not readable: " + err.Error()}
		}
		options.NoVerify = what.NoVerify
	}
	if options.Model == "" {
		options.Model = "the module"
	}
	if options.Temporary, err = os.MkdirTemp("", "collage-compile-"); err != nil {
		return nil, fmt.Errorf("making a folder for what is built on the way: %w", err)
	}
	defer os.RemoveAll(options.Temporary)
	options.Ending = &decide.Ending{}
	release, err := options.Ending.Watch()
	if err != nil {
		return nil, err
	}
	defer release()
	result, err := Compile(config.Context, options)
	if err = heard(err); err != nil {
		return nil, err
	}
	for _, warning := range result.Warnings { // nobody prints the answer's notes
		if err := config.Warning(warning); err != nil {
			return nil, err
		}
	}
	if what.PlanOut != "" {
		if err := result.Plan.WriteFile(what.PlanOut); err != nil {
			return nil, fmt.Errorf("%s was written, but not its plan: %w", what.Out, err)
		}
	}
	kept, err := result.Plan.Encode()
	if err != nil {
		return nil, fmt.Errorf("%s was written, but its plan cannot be: %w", what.Out, err)
	}
	return &answer{Chosen: result.Chosen, Why: result.Why, Notes: append([]string{}, result.Notes...),
		Bytes: result.Bytes, Plan: string(kept)}, nil
}
