// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
)

// finalist is one way to build the whole network.
type finalist struct {
	// name is a backend's for that backend alone, plan.PlacementName for the placement.
	name   string
	module *bridge.Object
	// plan is nil where nothing was placed: for TVM alone where it may not be chosen.
	plan *plan.Plan
	// eligible says that it may be chosen.
	eligible bool
	// placement is set where the graph level was searched, and then module is nil. origin is what the search called it.
	placement *genome.Placement
	origin    string
	// openOn is the backend that has the parts with open dimensions, of openPartsName.
	openOn string

	// sameAs is the finalist that has the same module; this one is then not built.
	sameAs *finalist
	// path is the built model.
	path  string
	bytes int64
	cost  cost.Cost
	// maxError is the greatest difference from TVM's outputs.
	maxError float64
	// resident and peak are what running it takes of memory, in bytes; 0 where that was not measured.
	resident, peak int64
	failure        *cost.Failure
	// settled says that it was chosen without a comparison.
	settled bool
	// rounds is in how many rounds of the comparison it runs, from the first on; 0 for all. One that does not run in
	// all of them is there to be told of, and is not chosen.
	rounds int
}

// referenceName is that of plain TVM where it is built to compare outputs with and for nothing else.
const referenceName = "reference"

// title is how the finalist is called in sentences.
func (f *finalist) title() string {
	switch {
	case f.name == plan.PlacementName:
		return "the placement"
	case f.name == operatorLevelName:
		return "the operator level's placement"
	case f.name == openPartsName:
		return "the placement with its open parts on " + f.openOn
	case strings.HasPrefix(f.name, graphLevelName):
		return "the graph level's placement" + strings.TrimPrefix(f.name, graphLevelName)
	}
	if f.name == referenceName {
		return "TVM alone, to compare with"
	}
	return f.name + " alone"
}

// isPlacement says that it is a placement, and no backend alone.
func (f *finalist) isPlacement() bool {
	return f.name == plan.PlacementName || f.name == operatorLevelName || f.name == openPartsName ||
		strings.HasPrefix(f.name, graphLevelName)
}

// titles are how finalists are called in sentences.
func titles(finalists []*finalist) []string {
	names := make([]string, len(finalists))
	for i, f := range finalists {
		names[i] = f.title()
	}
	return names
}

// regions counts the regions that were given to other backends than TVM.
func (f *finalist) regions() int {
	if f.plan == nil {
		return 0
	}
	return f.plan.Outlined()
}

// takes is how many operators are its backend's, of one that is a backend by itself; 0 of others.
func (f *finalist) takes() int {
	if f.plan == nil {
		return 0
	}
	if b := f.plan.Backend(f.name); b != nil {
		return b.Operators
	}
	return 0
}

// compilers are the Compiler attributes of its regions.
func (f *finalist) compilers() []string {
	names := map[string]bool{}
	if f.plan != nil {
		for i := range f.plan.Regions {
			if f.plan.Regions[i].Symbol != "" {
				names[backendCompiler(f.plan.Regions[i].Backends()[0])] = true
			}
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// built is the finalist that was built in its place.
func (f *finalist) built() *finalist {
	if f.sameAs != nil {
		return f.sameAs
	}
	return f
}

// all are the finalists, the reference first.
func (c *decision) all() []*finalist {
	var all []*finalist
	if c.reference != nil {
		all = append(all, c.reference)
	}
	for _, f := range c.finalists {
		if f != c.reference {
			all = append(all, f)
		}
	}
	return all
}

// distinct are the finalists that were built and have not failed, the reference first.
func (c *decision) distinct() []*finalist {
	var some []*finalist
	for _, f := range c.all() {
		if f.sameAs == nil && f.failure == nil {
			some = append(some, f)
		}
	}
	return some
}

// build builds every finalist. One that TVM cannot build has lost, with the reason; only the reference must be
// built.
func (c *decision) build() error {
	all := c.byExpected(c.all())
	var late []*finalist
	for i, f := range all {
		for _, earlier := range all[:i] {
			same, err := sameModule(earlier.module, f.module)
			if err != nil {
				return err
			}
			if same {
				f.sameAs = earlier.built()
				c.warnWhereNothingWorks(f)
				break
			}
		}
		if f.sameAs != nil {
			if f.eligible {
				c.note("%s", sameNote(f))
			}
			continue
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if i >= leastBuilt && c.tooLate() {
			late = append(late, f)
			continue
		}
		err := c.buildOne(f)
		switch {
		case err == nil:
		case errors.Is(err, bridge.ErrInterrupted), c.ctx.Err() != nil, atomicfile.IsDiskFull(err):
			return err
		case f == c.reference && c.machine != nil:
			return c.notOnMachine("build it for", err)
		case f == c.reference:
			return fmt.Errorf("TVM cannot build %s: %w", c.Name, err)
		default:
			f.failure = &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: oneLine(err)}
		}
	}
	c.leaveOut(late)
	return nil
}

// notOnMachine says that TVM cannot do that ("build it for", "run it on") its virtual machine with the reference.
func (c *decision) notOnMachine(what string, err error) error {
	return &placing.NotWholeError{Where: "TVM", Reason: fmt.Sprintf("cannot %s its virtual machine, which "+
		"is to run it since %s %s: %s", what, c.machine.Where, c.machine.Reason, oneLine(err))}
}

func sameNote(f *finalist) string {
	if f.isPlacement() {
		return fmt.Sprintf("%s is the same network as %s; it was built and measured once.", capital(f.title()),
			f.sameAs.title())
	}
	if f.sameAs.name == "tvm" && f.nothingWorks() == "" {
		return fmt.Sprintf("%s can take nothing of this network, so by itself it is the same as TVM alone.", f.name)
	}
	return fmt.Sprintf("%s alone is the same network as %s.", f.name, f.sameAs.title())
}

// warnWhereNothingWorks says of a backend by itself that it is plain TVM since its candidates failed.
func (c *decision) warnWhereNothingWorks(f *finalist) {
	if f.eligible && f.sameAs.name == "tvm" {
		if why := f.nothingWorks(); why != "" {
			c.warn("%s", why)
		}
	}
}

// nothingWorks says why a backend by itself is plain TVM where its candidates failed; "" where none did.
func (f *finalist) nothingWorks() string {
	var first *plan.Failure
	count := 0
	for i := range f.plan.Candidates.Failures {
		if one := &f.plan.Candidates.Failures[i]; one.Backend == f.name {
			if count++; first == nil {
				first = one
			}
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("Nothing of %s works: each of its candidates (%d) failed, the first (%s): %s.", f.name, count,
		strings.Join(first.Operators, ", "), first.Failure.String())
}

// buildOne has TVM build a finalist into the temporary folder.
func (c *decision) buildOne(f *finalist) error {
	step, began := c.Progress.Start("building "+f.title(), 0), time.Now()
	f.path = filepath.Join(c.Temporary, f.name+c.Extension)
	err := c.Build(f.module, Build{Target: c.target, OptLevel: c.OptLevel,
		DisabledPasses: normalise.BuildWithout(c.disabledPasses()),
		TuningLog:      c.TuningLog, Out: f.path, Plugins: pluginPaths(f.compilers()), Threads: c.Threads,
		OnMachine: c.machine != nil, Tried: c.Tried})
	if err != nil {
		c.Progress.Stop()
		return err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("the Python host did not write what it built: %w", err)
	}
	f.bytes = info.Size()
	if c.budget != nil {
		c.budget.Built(time.Since(began))
	}
	step.Done("%d regions outside of TVM, %.1f MB", f.regions(), float64(f.bytes)/1e6)
	return nil
}
