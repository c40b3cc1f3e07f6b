// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// poolLayouts are the data layouts of pools, by spatial dimensions.
var poolLayouts = map[int][]string{1: {"NCW", "NWC"}, 2: {"NCHW", "NHWC"}, 3: {"NCDHW", "NDHWC"}}

// PoolRules offers maximum and average pools over one to three dimensions, global ones, and adaptive ones
// whose windows are all of one size.
func PoolRules() []*Rule {
	var all []*Rule
	for _, kind := range []string{"max", "avg"} {
		for dims := 1; dims <= 3; dims++ {
			p := pool{kind: kind, dims: dims}
			text := "float32, static shapes, layouts " + strings.Join(poolLayouts[dims], ", ") +
				", no window wholly outside"
			all = append(all, Bare(fmt.Sprintf("nn.%s_pool%dd", kind, dims), []string{roleData}, p.check, text, p.read))

			text = "float32, static shapes, layouts " + strings.Join(poolLayouts[dims], ", ") + ", windows of one size"
			adaptive := Bare(fmt.Sprintf("nn.adaptive_%s_pool%dd", kind, dims), []string{roleData}, p.check, text,
				p.read)
			adaptive.Own = true
			all = append(all, adaptive)
		}
		p := pool{kind: kind, dims: 2}
		text := "float32, static shapes, layouts " + strings.Join(poolLayouts[2], ", ")
		all = append(all, Bare(fmt.Sprintf("nn.global_%s_pool2d", kind), []string{roleData}, p.check, text, p.read))
	}
	return all
}

// pool is one kind of pool over a number of spatial dimensions.
type pool struct {
	kind string // "max" or "avg"
	dims int
}

func (p pool) check(g *relay.Graph, m *relay.Match) error {
	_, err := p.window(g, m)
	return err
}

func (p pool) read(g *relay.Graph, m *relay.Match) (Layer, error) {
	w, err := p.window(g, m)
	if err != nil {
		return nil, err
	}
	return &Pool{
		Kind: p.kind, Dims: p.dims, Data: m.Named[roleData], Size: w.size, Strides: w.strides, Dilation: w.dilation,
		Padding: w.padding, IncludePadding: w.includePad, Layout: w.layout,
	}, nil
}

// window is a pool in oneDNN's terms: explicit windows over explicit padding.
type window struct {
	size, strides, dilation, padding []int64
	includePad                       bool
	layout                           string
}

// window reads any of the pool operators; the error says which limit it breaks.
func (p pool) window(g *relay.Graph, m *relay.Match) (*window, error) {
	c, err := CheckedCall(g, m.Root, "argument")
	if err != nil {
		return nil, err
	}
	n := c.Node
	if len(c.In) != 1 || len(c.In[0].Shape) != p.dims+2 || len(c.Out.Shape) != p.dims+2 {
		return nil, fmt.Errorf("%s has operands of other than %d dimensions", n.Op, p.dims+2)
	}
	w := &window{}
	if w.layout, err = p.layout(n); err != nil {
		return nil, err
	}
	// The sizes of the spatial dimensions, wherever the layout has them.
	first := 2
	if strings.HasSuffix(w.layout, "C") {
		first = 1
	}
	in, out := c.In[0].Shape[first:first+p.dims], c.Out.Shape[first:first+p.dims]
	if strings.HasPrefix(n.Op, "nn.global_") || strings.HasPrefix(n.Op, "nn.adaptive_") {
		return w, w.divide(n.Op, in, out)
	}
	return w, w.read(n, p.kind, in, out)
}

func (p pool) layout(n *relay.Node) (string, error) {
	layout, _ := n.Attrs.String("layout")
	if !slices.Contains(poolLayouts[p.dims], layout) {
		return "", fmt.Errorf("%s has data in %q; only %s are supported", n.Op, layout,
			strings.Join(poolLayouts[p.dims], ", "))
	}
	if out, _ := n.Attrs.String("out_layout"); out != "" && out != layout {
		return "", fmt.Errorf("%s stores its result in %s and reads %s; they must be equal", n.Op, out, layout)
	}
	return layout, nil
}

// divide makes the windows of an adaptive pool: those of equal size that tile the input.
func (w *window) divide(op string, in, out []int64) error {
	for i := range in {
		if in[i]%out[i] != 0 {
			return fmt.Errorf("%s makes %d values of %d, with windows of different sizes", op, out[i], in[i])
		}
		w.size = append(w.size, in[i]/out[i])
	}
	w.strides = w.size
	w.dilation = repeat(1, len(in))
	w.padding = repeat(0, 2*len(in))
	w.includePad = true
	return nil
}

// read takes the windows of an ordinary pool from its attributes.
func (w *window) read(n *relay.Node, kind string, in, out []int64) (err error) {
	dims := len(in)
	if w.size, err = spatial(n, "pool_size", dims); err != nil {
		return err
	}
	if w.strides, err = spatial(n, "strides", dims); err != nil {
		return err
	}
	if w.dilation, err = spatial(n, "dilation", dims); err != nil {
		return err
	}
	if w.padding, err = paddings(n, dims); err != nil {
		return err
	}
	if kind == "avg" {
		w.includePad, _ = n.Attrs.Bool("count_include_pad")
	}
	ceil, _ := n.Attrs.Bool("ceil_mode")
	unpadded := !slices.ContainsFunc(w.padding, func(p int64) bool { return p > 0 })
	for i := range in {
		extent := (w.size[i]-1)*w.dilation[i] + 1
		front, back := w.padding[i], w.padding[dims+i]
		last := (out[i] - 1) * w.strides[i] // where the last window begins, counted from the padding's edge
		if ceil {
			// oneDNN rounds the number of windows down: give it as much padding as the last window reaches over.
			if reach := last + extent - front - in[i]; reach > back {
				// TVM never counts what lies beyond the declared padding. oneDNN counts all padding or none.
				if w.includePad && !unpadded {
					return fmt.Errorf("%s counts its padding, and its last window (ceil_mode) reaches beyond that",
						n.Op)
				}
				w.includePad = false
				back = reach
				w.padding[dims+i] = back
			}
		}
		if (in[i]+front+back-extent)/w.strides[i]+1 != out[i] {
			return fmt.Errorf("%s makes %d values of %d, which its attributes do not explain", n.Op, out[i], in[i])
		}
		// A window that sees padding only has no maximum, and an average over nothing.
		if w.missesAll(i, in[i], out[i]) {
			return fmt.Errorf("%s has windows that lie wholly in the padding", n.Op)
		}
		// oneDNN takes such averages for ones over nothing, whether they are or not.
		if kind == "avg" && !w.includePad && (front >= w.size[i] || back >= w.size[i] || w.dilation[i] > in[i]) {
			return fmt.Errorf("%s averages windows whose padding or dilation is too great for oneDNN", n.Op)
		}
	}
	return nil
}

// missesAll says that some window along dimension i has all its points outside.
func (w *window) missesAll(i int, in, out int64) bool {
	front, extent := w.padding[i], (w.size[i]-1)*w.dilation[i]+1
	if front >= extent || (out-1)*w.strides[i] >= front+in {
		return true
	}
	if w.dilation[i] == 1 {
		return false
	}
	// A dilation sets the points apart.
	for o := range out {
		inside := false
		for k := range w.size[i] {
			at := o*w.strides[i] - w.padding[i] + k*w.dilation[i]
			inside = inside || at >= 0 && at < in
		}
		if !inside {
			return true
		}
	}
	return false
}
