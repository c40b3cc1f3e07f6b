// SPDX-License-Identifier: Apache-2.0

// Package byoc is the registry of backends: the libraries and compilers that can run parts of a network.
//
// What comes in: registrations (one folder below this one for each built-in backend; users register their
// own). What goes out: for each backend its patterns with their limits, whether its library is present, and
// the code generator behind TVM's BYOC hooks (relay.ext.<compiler>) that turns a region into a runtime
// module.
package byoc

import (
	"github.com/collage-tvm/collage/relay"
)

// Level says how a backend sees a network (Collage paper, section 3).
type Level uint8

const (
	// OperatorLevel is a library of kernels: one pattern, one kernel (oneDNN, cuBLAS, TVM itself).
	OperatorLevel Level = iota
	// GraphLevel is an engine that optimises across kernels within a region (TensorRT, OpenVINO).
	GraphLevel
)

// Backend is something that can run parts of a network. All methods are safe for concurrent use and give
// the same answer each time.
type Backend interface {
	// Name is what users write in --backends ("dnnl"): lower case letters, digits, '-', '_'.
	Name() string
	// Description is one line for `collage backends`.
	Description() string
	Level() Level
	// Compiler is the value of the Compiler attribute of the regions given to this backend, so that TVM finds
	// relay.ext.<Compiler>. It is "" for TVM's own share, which stays inline.
	Compiler() string
	// Patterns are what the backend can take, most specific first. Empty for a backend that takes whatever
	// TVM can lower (TakesAnything).
	Patterns() []Pattern
	// TakesAnything says that the backend runs every operator (TVM).
	TakesAnything() bool
	// MergesRegions says that neighbouring candidates on this backend are joined into one region.
	MergesRegions() bool
	// Probe says whether the backend can be used in this process. It does not load TVM.
	Probe() Probe
	// Install makes relay.ext.<Compiler> and the runtime that its modules need available in this process; it
	// is called once before the first use, with TVM loaded, and is idempotent. What the TVM in the process
	// already has is used as it is.
	Install() error
}

// Pattern is one thing that a backend can take as one candidate.
type Pattern struct {
	// Composite is the name of the Composite function that TVM's runtime for the backend knows the pattern by
	// ("dnnl.conv2d_bias_relu").
	Composite string
	// Shape is what must stand in the graph.
	Shape relay.Pattern
	// Limits refuses matches that the library cannot run (dtype, layout, attribute values, ranks); the error says
	// which limit was met, in words that a user understands. nil accepts everything.
	Limits func(g *relay.Graph, m *relay.Match) error
	// LimitsText says the limits in one line for `collage backends`.
	LimitsText string
	// Bare asks for the operator to stand in the region without a Composite function around it (how TVM's
	// JSON runtimes expect single operators that they know by the Relay name).
	Bare bool
	// Kernel is the name of the kernel that runs the pattern, for --pin, --forbid and reports ("winograd"); "" where
	// the library chooses. Several patterns of a backend may have the same.
	Kernel string
	// Reassociates says that the kernel associates its sums otherwise than a direct sum does (Winograd's transforms,
	// weights that are summed beforehand), so that its rounding errors are of another size. --exact does without it.
	Reassociates bool
	// Grouped says that the kernel works on neighbours together, so that a candidate by itself costs more than its
	// share among them. A search of whole networks begins with one in which such kernels do all that they can, too, and
	// learns from it.
	Grouped bool
}

// Probe is what is known about a backend's library on this machine.
type Probe struct {
	// Usable says that the backend can be used now.
	Usable bool `json:"usable"`
	// Library and Version name what was found ("oneDNN", "2.6.0"). Version is part of the key of stored costs.
	Library string `json:"library"`
	Version string `json:"version"`
	// Path is the library file, where there is one.
	Path string `json:"path,omitempty"`
	// Features are what of the machine the library uses ("avx512_core"), where it says so.
	Features []string `json:"features,omitempty"`
	// Reason says why the backend is not usable, and Remedy how to get what is missing; "" when usable.
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Proposer is implemented by a backend that proposes candidates by itself, beside its patterns: an engine that knows
// what it can run as one, a code generator that learns what pays.
type Proposer interface {
	// Propose gives groups of nodes that the backend could run as one, given the graph and what has been learnt about
	// candidates so far (nothing at first). It may be asked again, with more learnt. What is no legal candidate (a
	// dead node, several scopes, a value that comes back from outside, several exits of what is not bare or has no
	// Compiler) is left out by the caller, as is what was proposed before. The same graph and the same learnt give
	// the same proposals.
	Propose(g *relay.Graph, learnt []Learnt) []Proposal
}

// FallibleProposer is a Proposer whose proposing can fail (it runs somebody's Python); the search ends with the error.
// It is asked in the place of Propose.
type FallibleProposer interface {
	ProposeOrFail(g *relay.Graph, learnt []Learnt) ([]Proposal, error)
}

// Proposal is a candidate as a backend proposes it.
type Proposal struct {
	// Composite and Bare are as in Pattern; for a backend that takes anything, Composite is "".
	Composite string
	Bare      bool
	// Kernel, Reassociates and Grouped are as in Pattern.
	Kernel       string
	Reassociates bool
	Grouped      bool
	// OwnConstants says that what the constants hold, not only their shapes, matters to how fast it is (a mask of which
	// the kernel leaves out half): it is measured with them. The composite's name must tell it from others.
	OwnConstants bool
	// Nodes are the nodes to cover, ascending, without constants and variables. Where several of their values are used
	// outside, the region's function gives a tuple of them.
	Nodes []relay.NodeID
}

// Learnt is what is known about a candidate.
type Learnt struct {
	// Backend, Composite and Nodes say which candidate it is.
	Backend   string
	Composite string
	Nodes     []relay.NodeID
	// Milliseconds is its cost; +Inf where it failed, and then Failure says why.
	Milliseconds float64
	Failure      string
}
