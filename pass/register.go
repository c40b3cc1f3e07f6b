// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/fold"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// The packed functions that Register registers.
const (
	// PartitionPass takes a Config as JSON (may be missing) and gives the pass, a tvm.transform.Pass.
	PartitionPass = "collage.transform.CollagePartition"
	// NormalisePass takes NormaliseOptions as JSON (may be missing) and gives the pass.
	NormalisePass = "collage.transform.Normalise"
	// ReplayPass takes a plan as JSON, and a Config as JSON (may be missing), and gives the pass that places as the plan
	// says.
	ReplayPass = "collage.transform.Replay"
	// PartitionFunction takes a module, a Config as JSON (may be missing), and a packed function that gives costs
	// instead of measuring (may be missing; givenCosts). It gives the array [module, plan as JSON].
	PartitionFunction = "collage.partition"
	// PlaceFunction is PartitionFunction by what parts take alone (Place): no whole network is run.
	PlaceFunction = "collage.place"
	// VerifyFunction takes a plan as JSON and gives its plan.Proof as JSON; an error says why the plan proves nothing.
	VerifyFunction = "collage.plan.verify"
	// OperatorsFunction takes the name of a backend and gives the names of the operators in its patterns.
	OperatorsFunction = "collage.backend.operators"
	// InstallFunction takes the Compiler attribute of a backend's regions and makes its code generator known to TVM in
	// this process: for whoever builds a module that was partitioned elsewhere.
	InstallFunction = "collage.install"
	// WorkerPathFunction takes folders in which the workers' Python is to look for packages first: where the package
	// collage itself was imported from.
	WorkerPathFunction = "collage.set_worker_path"
	// FoldPass gives the pass that does FoldConstant's work in Go, as far as it goes (fold.Module).
	FoldPass = "collage.transform.FoldConstant"
	// FoldFunction gives a packed function that folds the constants of one expression after the other
	// (fold.Expressions): it takes an expression and gives the array [expression, 1 where TVM might fold more]; of an
	// expression with True behind it, one that TVM has folded, it takes notice; without arguments it lets go what it
	// holds.
	FoldFunction = "collage.fold_expressions"
	// TimingsFunction gives LastTimings as JSON, or None.
	TimingsFunction = "collage.last_timings"
)

// passOptions are the options of PassContext. They hold where the pass was made without a value of its own.
var passOptions = []struct {
	key  string
	kind bridge.OptionKind
	set  func(cfg *Config, v bridge.Value) error
}{
	{"collage.backends", bridge.OptionStringList,
		func(cfg *Config, v bridge.Value) error { return setStrings(&cfg.Backends, v) }},
	{"collage.pin", bridge.OptionStringList, func(cfg *Config,
		v bridge.Value) error {
		return setStrings(&cfg.Pin, v)
	}},
	{"collage.forbid", bridge.OptionStringList,
		func(cfg *Config, v bridge.Value) error { return setStrings(&cfg.Forbid, v) }},
	{"collage.target", bridge.OptionString, func(cfg *Config,
		v bridge.Value) error {
		return setString(&cfg.Target, v)
	}},
	{"collage.store", bridge.OptionString, func(cfg *Config, v bridge.Value) error { return setString(&cfg.Store, v) }},
	{"collage.tuning_log", bridge.OptionString,
		func(cfg *Config, v bridge.Value) error { return setString(&cfg.TuningLog, v) }},
	{"collage.level", bridge.OptionString, func(cfg *Config,
		v bridge.Value) error {
		return setString((*string)(&cfg.Level), v)
	}},
	{"collage.trials", bridge.OptionInteger, func(cfg *Config, v bridge.Value) error { return setInt(&cfg.Trials, v) }},
	{"collage.only", bridge.OptionString, func(cfg *Config, v bridge.Value) error { return setString(&cfg.Only, v) }},
	{"collage.python", bridge.OptionString, func(cfg *Config,
		v bridge.Value) error {
		return setString(&cfg.Python, v)
	}},
	{"collage.threads", bridge.OptionInteger,
		func(cfg *Config, v bridge.Value) error { return setInt(&cfg.Threads, v) }},
	{"collage.samples", bridge.OptionInteger,
		func(cfg *Config, v bridge.Value) error { return setInt(&cfg.Samples, v) }},
	{"collage.retry_failures", bridge.OptionBool,
		func(cfg *Config, v bridge.Value) error { return setBool(&cfg.RetryFailures, v) }},
	{"collage.exact", bridge.OptionBool, func(cfg *Config, v bridge.Value) error { return setBool(&cfg.Exact, v) }},
	{"collage.precision", bridge.OptionString,
		func(cfg *Config, v bridge.Value) error { return setString(&cfg.Precision.Allowed, v) }},
	{"collage.calibration", bridge.OptionString,
		func(cfg *Config, v bridge.Value) error { return setString(&cfg.Precision.Calibration, v) }},
	{"collage.calibration_method", bridge.OptionString,
		func(cfg *Config, v bridge.Value) error { return setString(&cfg.Precision.CalibrationMethod, v) }},
	{"collage.error_measure", bridge.OptionString,
		func(cfg *Config, v bridge.Value) error { return setString(&cfg.Precision.Measure, v) }},
	{"collage.max_error", bridge.OptionString,
		func(cfg *Config, v bridge.Value) error { return setFloat(&cfg.Precision.MaxError, v) }},
	{"collage.exhaustive", bridge.OptionBool,
		func(cfg *Config, v bridge.Value) error { return setBool(&cfg.Exhaustive, v) }},
	{"collage.skip_unusable", bridge.OptionBool,
		func(cfg *Config, v bridge.Value) error { return setBool(&cfg.SkipUnusable, v) }},
}

func setBool(field *bool, v bridge.Value) error {
	yes, err := v.Bool()
	*field = *field || yes
	return err
}

func setStrings(field *[]string, v bridge.Value) error {
	list, err := v.Object()
	if err != nil || len(*field) > 0 {
		return err
	}
	*field, err = list.Strings()
	return err
}

func setString(field *string, v bridge.Value) error {
	text, err := v.Str()
	if err == nil && *field == "" {
		*field = text
	}
	return err
}

// setFloat reads a number that is written as a text: PassContext knows no other options with a point.
func setFloat(field *float64, v bridge.Value) error {
	text, err := v.Str()
	if err != nil || *field != 0 {
		return err
	}
	if *field, err = strconv.ParseFloat(text, 64); err != nil {
		return fmt.Errorf("ValueError: %q is no number", text)
	}
	return nil
}

func setInt(field *int, v bridge.Value) error {
	n, err := v.Int()
	if err == nil && *field == 0 {
		*field = int(n)
	}
	return err
}

// Register registers the packed functions above and the options collage.* of PassContext. TVM must be loaded; one
// without a compiler gets nothing. It is idempotent.
func Register() error {
	if !bridge.HasCompiler() {
		return nil
	}
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	for _, o := range passOptions {
		if err := bridge.RegisterPassContextOption(o.key, o.kind); err != nil {
			return err
		}
	}
	for name, f := range map[string]func([]bridge.Value) (any, error){
		PartitionPass: partitionPass, NormalisePass: normalisePassObject, ReplayPass: replayPass,
		PartitionFunction: placing(PartitionFunction, Partition), PlaceFunction: placing(PlaceFunction, Place),
		VerifyFunction: verifyFunction, OperatorsFunction: operatorsFunction,
		InstallFunction: installFunction, WorkerPathFunction: setWorkerPath,
		NetworkFunction:       networkFunction,
		ResolveTargetFunction: resolveTargetFunction,
		FoldPass: func([]bridge.Value) (any,
			error) {
			return makePass("CollageFoldConstant", foldConstants)
		},
		FoldFunction:           func([]bridge.Value) (any, error) { return foldExpressions(), nil },
		DisabledPassesFunction: func([]bridge.Value) (any, error) { return DefaultDisabledPasses(), nil },
		WholeFunction:          wholeFunction,
		TimingsFunction:        func([]bridge.Value) (any, error) { return timingsJSON() },
	} {
		err := bridge.RegisterFunction(name, true, func(args []bridge.Value) (any, error) {
			result, err := f(args)
			return result, asPythonError(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// asPythonError makes an error that is the caller's to mend a ValueError in Python.
func asPythonError(err error) error {
	var option *OptionError
	var unknown *byoc.UnknownBackendError
	var unusable *UnusableError
	var uncovered *UncoveredError
	var replay *ReplayError
	if errors.As(err, &option) || errors.As(err, &unknown) || errors.As(err, &unusable) || errors.As(err, &uncovered) ||
		errors.As(err, &replay) ||
		errors.Is(err, fold.ErrDivision) {
		return fmt.Errorf("ValueError: %w", err)
	}
	return err
}

// argument is argument i as a string; "" where it is missing or None.
func argument(args []bridge.Value, i int, function string) (string, error) {
	if i >= len(args) || args[i].IsNil() {
		return "", nil
	}
	text, err := args[i].Str()
	if err != nil {
		return "", fmt.Errorf("TypeError: %s: argument %d is not a string: %s", function, i,
			strings.TrimPrefix(err.Error(), "TypeError: "))
	}
	return text, nil
}

func partitionPass(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, PartitionPass)
	if err != nil {
		return nil, err
	}
	given, err := ParseConfig(text)
	if err != nil {
		return nil, err
	}
	if err := given.Validate(); err != nil {
		return nil, err
	}
	return makePass("CollagePartition", func(mod *bridge.Object) (*bridge.Object, error) {
		cfg := given
		if err := fromPassContext(&cfg); err != nil {
			return nil, err
		}
		if !cfg.runsNothing() {
			out, _, err := Partition(mod, cfg)
			return out, err
		}
		var out *bridge.Object
		err := bridge.OnThread(func() error {
			s, made, err := placed(mod, cfg) // nobody asks for the plan
			if err == nil {
				lastTimings.Store(&s.timings)
				out = made
			}
			return err
		})
		return out, err
	})
}

func normalisePassObject(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, NormalisePass)
	if err != nil {
		return nil, err
	}
	var opts NormaliseOptions
	if err := parseJSON(text, &opts); err != nil {
		return nil, err
	}
	return makePass("CollageNormalise", func(mod *bridge.Object) (*bridge.Object,
		error) {
		return Normalise(mod, opts)
	})
}

func replayPass(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, ReplayPass)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode([]byte(text))
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return nil, &ReplayError{"it is not readable: " + err.Error()}
	}
	given, err := argument(args, 1, ReplayPass)
	if err != nil {
		return nil, err
	}
	options, err := ParseConfig(given)
	if err != nil {
		return nil, err
	}
	return makePass("CollageReplay", func(mod *bridge.Object) (*bridge.Object, error) {
		cfg := options
		if err := fromPassContext(&cfg); err != nil {
			return nil, err
		}
		if f := replayer.Load(); f != nil {
			return (*f)(mod, p, cfg)
		}
		return Replay(mod, p, cfg)
	})
}

// placing is the packed function with that name, by Partition or Place.
func placing(name string, place Decider) func(args []bridge.Value) (any, error) {
	return func(args []bridge.Value) (any, error) {
		if len(args) == 0 {
			return nil, fmt.Errorf("TypeError: %s takes a module and a configuration", name)
		}
		mod, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		text, err := argument(args, 1, name)
		if err != nil {
			return nil, err
		}
		cfg, err := ParseConfig(text)
		if err != nil {
			return nil, err
		}
		if err := fromPassContext(&cfg); err != nil {
			return nil, err
		}
		if cfg.Estimator, err = estimatorOf(args, 2); err != nil {
			return nil, err
		}
		out, p, err := place(mod, cfg)
		if err != nil {
			return nil, err
		}
		encoded, err := p.Encode()
		if err != nil {
			return nil, err
		}
		return []any{out, string(encoded)}, nil
	}
}

func verifyFunction(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, VerifyFunction)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode([]byte(text))
	var proof plan.Proof
	if err == nil {
		proof, err = p.Prove()
	}
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	told, err := json.Marshal(map[string]float64{"ms": proof.Milliseconds, "bound_ms": proof.Bound,
		"gap_ms": proof.Gap()})
	return string(told), err
}

func operatorsFunction(args []bridge.Value) (any, error) {
	name, err := argument(args, 0, OperatorsFunction)
	if err != nil {
		return nil, err
	}
	backends, err := findBackends([]string{name})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range backends[0].Patterns() {
		names = append(names, relay.Operators(p.Shape)...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func installFunction(args []bridge.Value) (any, error) {
	compiler, err := argument(args, 0, InstallFunction)
	if err != nil {
		return nil, err
	}
	for _, b := range byoc.All() {
		if compiler == "" || b.Compiler() != compiler {
			continue
		}
		// Of backends that share a compiler one is enough.
		if _, err = lookupBackends([]string{b.Name()}); err == nil {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("ValueError: no backend has regions with the attribute Compiler=%q", compiler)
}

func setWorkerPath(args []bridge.Value) (any, error) {
	folders := make([]string, len(args))
	for i := range args {
		folder, err := argument(args, i, WorkerPathFunction)
		if err != nil {
			return nil, err
		}
		folders[i] = folder
	}
	workerPath.Store(&folders)
	return nil, nil
}

// foldExpressions makes what FoldFunction gives.
func foldExpressions() func(args []bridge.Value) (any, error) {
	expressions := fold.NewExpressions()
	return func(args []bridge.Value) (any, error) {
		if len(args) == 0 {
			expressions.Release()
			return nil, nil
		}
		expr, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		if len(args) > 1 {
			return nil, expressions.Learn(expr)
		}
		folded, left, err := expressions.Fold(expr)
		if err != nil {
			return nil, asPythonError(err)
		}
		more := 0
		if left {
			more = 1
		}
		return []any{folded, more}, nil
	}
}

// fromPassContext takes the options of the PassContext around the call where cfg says nothing.
func fromPassContext(cfg *Config) error {
	for _, o := range passOptions {
		v, ok, err := bridge.PassContextConfig(o.key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := o.set(cfg, v); err != nil {
			return &OptionError{o.key, "of the PassContext is not readable: " + err.Error()}
		}
	}
	return nil
}

// makePass makes a module pass of TVM's.
func makePass(name string, f func(mod *bridge.Object) (*bridge.Object, error)) (*bridge.Object, error) {
	v, err := bridge.Global("transform.PassInfo", 0, name, []string{}, false)
	if err != nil {
		return nil, err
	}
	info, err := v.Object()
	if err != nil {
		return nil, err
	}
	defer info.Release()
	v, err = bridge.Global("transform.MakeModulePass", func(args []bridge.Value) (any, error) {
		mod, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		out, err := f(mod)
		if err != nil {
			return nil, asPythonError(err)
		}
		return out, nil
	}, info)
	if err != nil {
		return nil, err
	}
	return v.Object()
}
