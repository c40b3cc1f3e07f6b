// SPDX-License-Identifier: Apache-2.0

// Package dnnl is oneDNN (once named DNNL) as a backend, through TVM's oneDNN JSON runtime.
//
// What comes in: for the placement, graphs in which its patterns are looked for; from TVM, region functions
// through the packed functions relay.ext.dnnl and relay.ext.dnnl.constant_updater. What goes out: the
// patterns with their limits, and for each region function a runtime module: a graph of kernels in JSON
// that libcollage_dnnl.so, TVM's own runtime compiled against oneDNN, executes.
//
// A pattern is a rule (rule.go): what must stand in the graph, what the library refuses, and the kernel that
// is written for it. convolution.go, dense.go, pool.go, elementwise.go and norm.go hold the rules; program.go
// turns a region into a list of kernels, graphjson.go into text, and hooks.go hands it to TVM.
package dnnl

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions.
const (
	Name     = "dnnl"
	Compiler = "dnnl"
)

type backend struct {
	patterns func() []byoc.Pattern
	// lock guards the fields below.
	lock sync.Mutex
	// installed says that Install has succeeded.
	installed bool
	// plugin keeps the plug-in loaded: its packed functions stay registered for the life of the process.
	plugin *bridge.Module
}

// foreign says that relay.ext.dnnl in this process is that of a TVM which was built with oneDNN. It is a
// property of the process, since packed functions are.
var foreign atomic.Bool

// New gives the backend. It needs neither TVM nor oneDNN; Probe says whether oneDNN is there.
func New() byoc.Backend {
	return &backend{patterns: sync.OnceValue(func() []byoc.Pattern {
		var all []byoc.Pattern
		for _, r := range rules() {
			p := r.Pattern
			if r.own {
				p.Limits = func(g *relay.Graph, m *relay.Match) error {
					if foreign.Load() {
						return fmt.Errorf("the code generator for oneDNN that this TVM was built with does not know %s", r.Composite)
					}
					return r.Limits(g, m)
				}
			}
			all = append(all, p)
		}
		return all
	})}
}

func (*backend) Name() string { return Name }
func (*backend) Description() string {
	return "oneDNN 2.6, Intel's kernels for x86 CPUs, through TVM's own runtime for it"
}
func (*backend) Level() byoc.Level          { return byoc.OperatorLevel }
func (*backend) Compiler() string           { return Compiler }
func (b *backend) Patterns() []byoc.Pattern { return b.patterns() }
func (*backend) TakesAnything() bool        { return false }

// MergesRegions is false: TVM's runtime allocates every value inside a region anew at each call, while
// values between regions live in TVM's planned memory.
func (*backend) MergesRegions() bool { return false }

// Install makes relay.ext.dnnl and the oneDNN runtime available in this process. A TVM that was built with
// oneDNN has both already; they are used as they are.
func (b *backend) Install() error {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.installed {
		return nil
	}
	if err := b.install(); err != nil {
		return fmt.Errorf("dnnl: %w", err)
	}
	b.installed = true
	return nil
}
