// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/fold"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/ragged"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// The packed functions that Register registers.
const (
	// PartitionPass takes a Config as JSON (may be missing) and gives the pass, a tvm.transform.Pass.
	PartitionPass = "collage.transform.CollagePartition"
	// NormalisePass takes normalise.Options as JSON (may be missing) and gives the pass.
	NormalisePass = "collage.transform.Normalise"
	// OpenDimensionsPass takes what is known of the open dimensions of main's parameters as JSON (an object: for a
	// parameter a list with an object for each dimension, with "name", "" for one without, "least" and "most"; may be
	// missing) and gives the pass symbolic.Settle, which Normalise does without names: it gives a module with open
	// dimensions the form that it would have with fixed ones.
	OpenDimensionsPass = "collage.transform.OpenDimensions"
	// ClearPaddingPass takes the name of the input that says which places of padded batches are tokens and gives the
	// pass (ragged.ClearPadding).
	ClearPaddingPass = "collage.transform.ClearPadding"
	// ReplayPass takes a plan as JSON, and a Config as JSON (may be missing), and gives the pass that places as the
	// plan says.
	ReplayPass = "collage.transform.Replay"
	// PartitionFunction takes a module, a Config as JSON (may be missing), and a packed function that gives costs
	// instead of measuring (may be missing; givenCosts). It gives the array [module, plan as JSON].
	PartitionFunction = "collage.partition"
	// PlaceFunction does what collage.partition does, by what parts take alone (network.Place): no whole network is run.
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
	// TimingsFunction gives where the time of the last placement in this process went, as JSON (placing.LastTimings), or
	// None.
	TimingsFunction = "collage.last_timings"
	// WholeFunction gives, for a typed module, why the graph executor does not run it, and "" where it does.
	WholeFunction = "collage.whole"
	// ResolveTargetFunction takes a target as users say it ("x86-64-v3") and gives TVM's (settings.ResolveTarget).
	ResolveTargetFunction = "collage.resolve_target"
	// DisabledPassesFunction gives the passes of TVM's that builds leave out by default, as an array.
	DisabledPassesFunction = "collage.disabled_passes"
	// OptionsFunction gives settings.Options as JSON: a list of objects with "name", "kind", "default", "flag" (of the
	// command line; "" for none), "part" and "meaning".
	OptionsFunction = "collage.options"
	// NetworkFunction takes a module as Network.Save wrote it, weights bound again and types inferred, and a
	// network.Spec as JSON; it gives the module with the regions. Workers call it.
	NetworkFunction = "collage.network.annotate"
)

// Register registers the packed functions above and the options collage.* of PassContext. TVM must be loaded; one
// without a compiler gets nothing. It is idempotent.
func Register() error {
	if !bridge.HasCompiler() {
		return nil
	}
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	if err := registerOptions(); err != nil {
		return err
	}
	for name, f := range map[string]func([]bridge.Value) (any, error){
		PartitionPass: partitionPass, NormalisePass: normalisePassObject, ReplayPass: replayPass,
		OpenDimensionsPass: openDimensionsPass, ClearPaddingPass: clearPaddingPass,
		PartitionFunction: placer(PartitionFunction, Partition), PlaceFunction: placer(PlaceFunction, network.Place),
		PlanFunction: placer(PlanFunction, planFunction), PlanTableFunction: planTable,
		PlanExplainFunction: planExplain, PlanDiffFunction: planDiff, PlanPageFunction: planPage, PlanPictureFunction: planPicture,
		VerifyFunction: verifyFunction, OperatorsFunction: operatorsFunction,
		InstallFunction: installFunction, WorkerPathFunction: setWorkerPath,
		NetworkFunction:       networkFunction,
		ResolveTargetFunction: resolveTargetFunction,
		FoldPass: func([]bridge.Value) (any,
			error) {
			return makePass("CollageFoldConstant", normalise.FoldConstants)
		},
		FoldFunction:           func([]bridge.Value) (any, error) { return foldExpressions(), nil },
		DisabledPassesFunction: func([]bridge.Value) (any, error) { return settings.DefaultDisabledPasses(), nil },
		OptionsFunction:        optionsFunction,
		WholeFunction:          wholeFunction,
		TimingsFunction:        func([]bridge.Value) (any, error) { return timingsJSON() },
	} {
		err := bridge.RegisterFunction(name, true, func(args []bridge.Value) (any, error) {
			result, err := f(args)
			return result, AsPythonError(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AsPythonError makes an error that is the caller's to mend a ValueError in Python.
func AsPythonError(err error) error {
	var option *settings.OptionError
	var unknown *byoc.UnknownBackendError
	var unusable *settings.UnusableError
	var uncovered *placing.UncoveredError
	var replay *placing.ReplayError
	var strict *settings.StrictError
	if errors.As(err, &option) || errors.As(err, &unknown) || errors.As(err, &unusable) || errors.As(err, &uncovered) ||
		errors.As(err, &replay) || errors.As(err, &strict) ||
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
	given, err := settings.ParseConfig(text)
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
		if !cfg.RunsNothing() {
			out, _, err := Partition(mod, cfg)
			return out, err
		}
		return decide.Annotated(mod, cfg) // nobody asks for the plan
	})
}

func normalisePassObject(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, NormalisePass)
	if err != nil {
		return nil, err
	}
	var opts normalise.Options
	if err := settings.ParseJSON(text, &opts); err != nil {
		return nil, err
	}
	return makePass("CollageNormalise", func(mod *bridge.Object) (*bridge.Object,
		error) {
		return normalise.Normalise(mod, opts)
	})
}

func openDimensionsPass(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, OpenDimensionsPass)
	if err != nil {
		return nil, err
	}
	var inputs symbolic.Inputs
	if err := settings.ParseJSON(text, &inputs); err != nil {
		return nil, err
	}
	return makePass("CollageOpenDimensions", func(mod *bridge.Object) (*bridge.Object, error) {
		return symbolic.Settle(mod, inputs)
	})
}

func clearPaddingPass(args []bridge.Value) (any, error) {
	mask, err := argument(args, 0, ClearPaddingPass)
	if err != nil {
		return nil, err
	}
	return makePass("CollageClearPadding", func(mod *bridge.Object) (*bridge.Object, error) {
		out, _, err := ragged.ClearPadding(mod, mask)
		return out, err
	})
}

func replayPass(args []bridge.Value) (any, error) {
	text, err := argument(args, 0, ReplayPass)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode([]byte(text))
	if err != nil {
		return nil, &placing.ReplayError{Reason: "it is not readable: " + err.Error()}
	}
	given, err := argument(args, 1, ReplayPass)
	if err != nil {
		return nil, err
	}
	options, err := settings.ParseConfig(given)
	if err != nil {
		return nil, err
	}
	return makePass("CollageReplay", func(mod *bridge.Object) (*bridge.Object, error) {
		cfg := options
		if err := fromPassContext(&cfg); err != nil {
			return nil, err
		}
		return decide.ReplayModule(mod, p, cfg)
	})
}

// placer is the packed function with that name, by Partition or Place.
func placer(name string, place func(*bridge.Object, settings.Config) (*bridge.Object, *plan.Plan,
	error)) func(args []bridge.Value) (any, error) {
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
		cfg, err := settings.ParseConfig(text)
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
	backends, err := settings.FindBackends([]string{name})
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
		if _, err = settings.LookupBackends([]string{b.Name()}); err == nil {
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
	workers.SetWorkerPath(folders)
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
			return nil, AsPythonError(err)
		}
		more := 0
		if left {
			more = 1
		}
		return []any{folded, more}, nil
	}
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
			return nil, AsPythonError(err)
		}
		return out, nil
	}, info)
	if err != nil {
		return nil, err
	}
	return v.Object()
}

func wholeFunction(args []bridge.Value) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("TypeError: %s takes a module", WholeFunction)
	}
	mod, err := args[0].Object()
	if err != nil {
		return nil, err
	}
	err = placing.Whole(mod)
	if part := (*placing.NotWholeError)(nil); errors.As(err, &part) {
		return strings.TrimSpace(part.Where + " " + part.Reason), nil
	}
	return "", err
}

func resolveTargetFunction(args []bridge.Value) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("TypeError: %s takes a target", ResolveTargetFunction)
	}
	name, err := args[0].Str()
	if err != nil {
		return nil, err
	}
	target, err := settings.ResolveTarget(name)
	if err != nil {
		return nil, &settings.OptionError{Option: "target", Reason: err.Error()}
	}
	return target, nil
}

// networkFunction is NetworkFunction.
func networkFunction(args []bridge.Value) (any, error) {
	if len(args) < 2 {
		return nil, fmt.Errorf("TypeError: %s takes a module and the regions as JSON", NetworkFunction)
	}
	mod, err := args[0].Object()
	if err != nil {
		return nil, err
	}
	text, err := argument(args, 1, NetworkFunction)
	if err != nil {
		return nil, err
	}
	var spec network.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return nil, fmt.Errorf("ValueError: %s: the regions are not readable: %w", NetworkFunction, err)
	}
	var out *bridge.Object
	err = bridge.OnThread(func() error {
		out, err = network.ApplySpec(mod, &spec)
		return err
	})
	return out, err
}

func timingsJSON() (any, error) {
	t := placing.LastTimings()
	if t == nil {
		return nil, nil
	}
	text, err := json.Marshal(t)
	return string(text), err
}
