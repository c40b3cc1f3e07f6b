// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// What follows a backend may have beside the methods of Backend. Each interface has one method that gives what the
// backend has, nil where it has nothing, so that a backend which is data (Definition) can implement them all.

// OpenTaker is a backend whose regions may have dimensions that are known only when the network runs (relay.AnyDim):
// its limits are asked for operators with such, and its code generator takes them.
type OpenTaker interface{ TakesOpen() bool }

// SizedTaker is a backend whose regions may have open dimensions, too, but which knows sizes when it looks at an
// operator: its limits, and what it proposes, are asked of graphs in which each open dimension has a size, several times
// with others, and what it takes each time is a candidate. Its code generator writes a region for all sizes
// (byoc/region.RegisterSized).
type SizedTaker interface{ TakesSized() bool }

// TakesSized says that a backend is such a one.
func TakesSized(b Backend) bool {
	s, ok := b.(SizedTaker)
	return ok && s.TakesSized()
}

// LimitsText is a pattern's, as a backend has it: one that knows sizes takes open ones where the limits speak of static
// shapes.
func LimitsText(b Backend, p *Pattern) string {
	if TakesSized(b) {
		return strings.Replace(p.LimitsText, "static shapes", "open dimensions", 1)
	}
	return p.LimitsText
}

// TakesOpen says that a backend's regions may have open dimensions.
func TakesOpen(b Backend) bool {
	o, ok := b.(OpenTaker)
	return ok && o.TakesOpen() || TakesSized(b)
}

// Style says how the operators that a backend supports are combined to larger candidates.
type Style uint8

// The styles (TVM's prototype: option relay.collage.byoc_fusion_style).
const (
	// NoFusion leaves operators alone.
	NoFusion Style = iota
	// TVMFusion combines what TVM's FuseOps would.
	TVMFusion
	// ArbitraryFusion combines whatever touches and is not opaque.
	ArbitraryFusion
)

// Rules generate candidates by the kinds of the operators.
type Rules struct {
	// Supports says why the backend cannot run an operator; nil where it can. It is asked for each operator call.
	Supports func(g *relay.Graph, call relay.NodeID) error
	// Style and MaxDepth say what is combined: at most MaxDepth operators one behind the other (0 for 8).
	Style    Style
	MaxDepth int
	// Limit is how many groups the rules may make for a function before they stop; 0 for 4096.
	Limit int
}

// Ruler is a backend whose candidates rules generate. They are bare (Pattern.Bare), and all that relay.ext.<Compiler>
// gets of them is the operators.
type Ruler interface{ Rules() *Rules }

// Matcher is a backend whose patterns somebody else matches than relay.Graph.Match: those of tvm.relay.dataflow_pattern
// are TVM's to match. The error (a predicate that raised one) ends the search.
type Matcher interface {
	Matches(g *relay.Graph) ([]Proposal, error)
}

// CostFunction is a backend's own estimate of what a candidate takes, in milliseconds of one call. +Inf says that the
// candidate must not be placed. Where known is false it is measured like any other. An estimate is taken as it is: the
// candidate is neither built nor compared with TVM's result before the whole network is.
type CostFunction func(g *relay.Graph, c Proposal) (milliseconds float64, known bool, err error)

// Coster is a backend that estimates its candidates by itself.
type Coster interface{ CostFunction() CostFunction }

// BorderCost is what it takes, in milliseconds, to bring a tensor to one of a backend's regions from elsewhere, and
// from one to elsewhere (another device, another layout); both at least 0. A value is paid for once by the region that
// makes it and once by each other region that reads it, whoever's those are (pass/border). TVM's own side of a border
// is free.
type BorderCost func(t *relay.Type) (in, out float64)

// Borderer is a backend whose borders cost something.
type Borderer interface{ BorderCost() BorderCost }

// Tensor is a constant tensor with its data, compact and little-endian.
type Tensor struct {
	DType string
	Shape []int64
	Data  []byte
}

// PackParameters gives the form in which an operator's constant argument is to be stored in the executable (transposed,
// blocked, converted): it is called once, when the region is compiled. The first result may be t itself. t.Data must
// not be changed.
type PackParameters func(operator string, argument int, t Tensor) (Tensor, error)

// Packer is a backend that packs parameters. The emitters that write constants (byoc/csource) obey it.
type Packer interface{ PackParameters() PackParameters }

// Linker is a backend whose regions need other libraries than the plug-in named after its Compiler.
type Linker interface {
	// Libraries are names for PluginPath, or absolute paths of shared libraries; nil for the plug-in named after the
	// Compiler. An exported model is linked with them.
	Libraries() []string
}

// WorkerSetup is a backend that must be set up in measuring workers in a way of its own, since it was not built into
// libcollage.
type WorkerSetup interface {
	// WorkerSetup is a JSON object for collage.workerside (Python), "" for nothing.
	WorkerSetup() string
}

// Cohabitant is a backend that may share its Compiler attribute, and thereby regions, with another one: one code
// generator and one engine run the candidates of both, and neighbours join whichever of the two they belong to.
type Cohabitant interface {
	// SharesCompiler says that the backend does so. Register permits a Compiler to several backends if all of them say
	// so and merge regions (Backend.MergesRegions); each one's Install must leave the same code generator behind.
	SharesCompiler() bool
}

// Refresher is a backend that remembers what Probe found. Refresh makes it look again; it is called when a search
// begins.
type Refresher interface{ Refresh() }

// SharesCompiler says that a backend may share its Compiler with others (Cohabitant).
func SharesCompiler(b Backend) bool {
	c, ok := b.(Cohabitant)
	return ok && c.SharesCompiler() && b.MergesRegions()
}

// ShareRegions says that candidates of two backends can stand in one region.
func ShareRegions(a, b Backend) bool {
	return a.Compiler() != "" && a.Compiler() == b.Compiler() && a.MergesRegions() && b.MergesRegions()
}

// KernelProposer is a Proposer whose proposals name kernels.
type KernelProposer interface {
	// ProposedKernels are the names that its proposals may have (Proposal.Kernel).
	ProposedKernels() []string
}

// PaddingClearer is a backend with a kernel that clears the padding of batches (pass/ragged), in whose region other
// kernels need not compute it.
type PaddingClearer interface {
	// PaddingKernels are the one that clears it, and those that do without it where what other backends have for the
	// same, operator by operator, does not.
	PaddingKernels() (clears string, without []string)
}

// Kernels are the names of a backend's kernels, sorted: those that its patterns name, and those of a KernelProposer.
func Kernels(b Backend) []string {
	var names []string
	if p, ok := b.(KernelProposer); ok {
		names = slices.Clone(p.ProposedKernels())
	}
	for _, p := range b.Patterns() {
		if p.Kernel != "" {
			names = append(names, p.Kernel)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// RulesOf, CostFunctionOf, BorderCostOf and PackParametersOf give what a backend has of these; nil for nothing.
func RulesOf(b Backend) *Rules {
	if r, ok := b.(Ruler); ok {
		return r.Rules()
	}
	return nil
}

// CostFunctionOf: see RulesOf. What is declared (Declare) comes before what the backend says by itself.
func CostFunctionOf(b Backend) CostFunction {
	if d := DeclarationOf(b); d != nil && d.Cost != nil {
		return d.Cost
	}
	if c, ok := b.(Coster); ok {
		return c.CostFunction()
	}
	return nil
}

// BorderCostOf: see RulesOf.
func BorderCostOf(b Backend) BorderCost {
	if c, ok := b.(Borderer); ok {
		return c.BorderCost()
	}
	return nil
}

// PackParametersOf: see RulesOf.
func PackParametersOf(b Backend) PackParameters {
	if p, ok := b.(Packer); ok {
		return p.PackParameters()
	}
	return nil
}

// Libraries are the files that a model with regions of a backend is linked with: what a Linker names, otherwise the
// plug-in named after the Compiler, where it was built. The error says which of the former cannot be found.
func Libraries(b Backend) ([]string, error) {
	if l, ok := b.(Linker); ok {
		if names := l.Libraries(); names != nil {
			return libraryFiles(names)
		}
	}
	if compiler := b.Compiler(); compiler != "" {
		if path, err := PluginPath(compiler); err == nil {
			return []string{path}, nil
		}
	}
	return nil, nil
}

func libraryFiles(names []string) ([]string, error) {
	files := make([]string, len(names))
	for i, name := range names {
		files[i] = name
		if filepath.IsAbs(name) {
			if err := checkSoname(name); err != nil {
				return nil, fmt.Errorf("a library that regions are linked with: %w", err)
			}
			continue
		}
		path, err := PluginPath(name)
		if err != nil {
			return nil, err
		}
		files[i] = path
	}
	return files, nil
}

// checkSoname says why models could not find a library again: they name it by its SONAME and say nothing of its place.
func checkSoname(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil //nolint:nilerr // what is no library the linker refuses
	}
	defer file.Close()
	if names, err := file.DynString(elf.DT_SONAME); err != nil || len(names) == 0 {
		return fmt.Errorf("%s has no name of its own, by which a model could find it: link it with -Wl,-soname,%s",
			path,
			filepath.Base(path))
	}
	return nil
}

// LibrariesFor is Libraries for the registered backends whose regions have this Compiler attribute; for any other
// compiler the plug-in that is named after it, where it was built.
func LibrariesFor(compiler string) ([]string, error) {
	var files []string
	known := false
	for _, b := range All() {
		if compiler != "" && b.Compiler() == compiler {
			of, err := Libraries(b)
			if err != nil {
				return nil, err
			}
			known = true
			files = append(files, of...)
		}
	}
	if known {
		slices.Sort(files)
		return slices.Compact(files), nil
	}
	if path, err := PluginPath(compiler); compiler != "" && err == nil {
		return []string{path}, nil
	}
	return nil, nil
}
