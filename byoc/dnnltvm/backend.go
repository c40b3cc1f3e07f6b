// SPDX-License-Identifier: Apache-2.0

// Package dnnltvm is oneDNN through TVM's own JSON runtime for it, the yardstick of byoc/dnnl. Where the TVM in the
// process was built with oneDNN, its code generator and runtime are used as they are.
//
// What comes in: for the placement, graphs in which the patterns of byoc/onednn are looked for; from TVM, region
// functions through the packed functions relay.ext.dnnl and relay.ext.dnnl.constant_updater. What goes out: for each
// region function a runtime module: a graph of kernels in JSON that libcollage_dnnl_tvm.so, TVM's runtime compiled
// against oneDNN, executes.
//
// program.go turns a region into a list of kernels, kernel.go the layer of one match into a kernel, graphjson.go all
// into text, and hooks.go hands it to TVM.
package dnnltvm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions; plugin is the name of the
// plug-in (byoc.PluginPath).
const (
	Name     = "dnnl_tvm"
	Compiler = "dnnl"
	plugin   = "dnnl_tvm"
)

type backend struct {
	patterns func() []byoc.Pattern
	// lock guards the fields below.
	lock sync.Mutex
	// installed says that Install has succeeded.
	installed bool
}

// foreign says that relay.ext.dnnl in this process is that of a TVM which was built with oneDNN. It is a
// property of the process, since packed functions are.
var foreign atomic.Bool

// New gives the backend. It needs neither TVM nor oneDNN; Probe says whether oneDNN is there.
func New() byoc.Backend {
	return &backend{patterns: sync.OnceValue(func() []byoc.Pattern {
		var all []byoc.Pattern
		for _, r := range onednn.Rules() {
			p := r.Pattern
			if r.Own {
				p.Limits = func(g *relay.Graph, m *relay.Match) error {
					if foreign.Load() {
						return fmt.Errorf("the code generator for oneDNN that this TVM was built with does not know %s",
							r.Composite)
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
	return "oneDNN 2.6 through TVM's own runtime for it, to compare with"
}
func (*backend) Level() byoc.Level          { return byoc.OperatorLevel }
func (*backend) Compiler() string           { return Compiler }
func (b *backend) Patterns() []byoc.Pattern { return b.patterns() }
func (*backend) TakesAnything() bool        { return false }
func (*backend) Probe() byoc.Probe          { return onednn.Probe(plugin) }

// Libraries is the plug-in, which is not named after the Compiler: that name is byoc/dnnl's.
func (*backend) Libraries() []string { return []string{plugin} }

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
		return fmt.Errorf("%s: %w", Name, err)
	}
	b.installed = true
	return nil
}
