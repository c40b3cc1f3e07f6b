// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

const shapeLimits = "float32, static shapes, at most 6 dimensions"

// The layers of this file. Inside a region most of them cost nothing: they change how a buffer is seen.
type (
	// reshape gives the result's shape to the argument's numbers, in plain order.
	reshape struct{ data relay.NodeID }
	// transpose makes axis axes[i] of the argument axis i of the result.
	transpose struct {
		data relay.NodeID
		axes []int64
	}
	// reduce takes the sum, mean, max or min over axes that follow one another, ascending.
	reduce struct {
		function string
		data     relay.NodeID
		axes     []int64
	}
	// variance is the mean square about a mean that is given.
	variance struct {
		data, mean relay.NodeID
		axes       []int64
		unbiased   bool
	}
	// resize enlarges or shrinks the spatial dimensions.
	resize struct {
		method string // "nearest" or "bilinear"
		layout string
		data   relay.NodeID
	}
)

// shapeRules offers what only moves numbers, or only says how they are seen.
func shapeRules() []*onednn.Rule {
	check := func(g *relay.Graph, m *relay.Match) error {
		_, err := onednn.CheckedCall(g, m.Root, "argument")
		return err
	}
	var all []*onednn.Rule
	for _, op := range []string{"reshape", "nn.batch_flatten", "squeeze", "expand_dims"} {
		all = append(all, onednn.Bare(op, nil, check, shapeLimits,
			func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
				return &reshape{g.Nodes[m.Root].Inputs[0]}, nil
			}))
	}
	all = append(all, onednn.Bare("transpose", nil, check, shapeLimits,
		func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
			n := &g.Nodes[m.Root]
			return &transpose{n.Inputs[0], onednn.TransposeAxes(n, n.Type.Rank())}, nil
		}))
	return append(all, onednn.ConcatenateRule())
}

// reduceRules offers sums, means and extremes over axes that follow one another.
func reduceRules() []*onednn.Rule {
	var all []*onednn.Rule
	for _, op := range []string{"sum", "mean", "max", "min"} {
		all = append(all, onednn.Bare(op, nil, checkReduce, shapeLimits+", axes that follow one another",
			func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
				n := &g.Nodes[m.Root]
				axes, err := onednn.ReducedAxes(g, n)
				return &reduce{op, n.Inputs[0], axes}, err
			}))
	}
	return append(all, varianceRule())
}

// varianceRule offers the variance about a mean that is given.
func varianceRule() *onednn.Rule {
	return onednn.Bare("variance", nil, checkVariance, shapeLimits+", axes that follow one another",
		func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) {
			n := &g.Nodes[m.Root]
			axes, err := onednn.ReducedAxes(g, n)
			unbiased, _ := n.Attrs.Bool("unbiased")
			return &variance{data: n.Inputs[0], mean: n.Inputs[1], axes: axes, unbiased: unbiased}, err
		})
}

func checkVariance(g *relay.Graph, m *relay.Match) error {
	c, err := onednn.CheckedCall(g, m.Root, "argument", "mean")
	if err != nil {
		return err
	}
	axes, err := onednn.ReducedAxes(g, c.Node)
	if err != nil {
		return err
	}
	data, mean := c.In[0].Shape, c.In[1].Shape
	length := int64(1)
	for i, d := range data {
		reduced := int64(i) >= axes[0] && int64(i) <= axes[len(axes)-1]
		if reduced {
			length *= d
			d = 1
		}
		if len(mean) != len(data) || mean[i] != d {
			return fmt.Errorf("variance is about a mean of the shape %s for %s", relay.ShapeText(mean),
				relay.ShapeText(data))
		}
	}
	if unbiased, _ := c.Node.Attrs.Bool("unbiased"); unbiased && length == 1 {
		return fmt.Errorf("the unbiased variance of one element is not a number")
	}
	return nil
}

func checkReduce(g *relay.Graph, m *relay.Match) error {
	if _, err := onednn.CheckedCall(g, m.Root, "argument"); err != nil {
		return err
	}
	_, err := onednn.ReducedAxes(g, &g.Nodes[m.Root])
	return err
}

// resizeRules offers nearest and bilinear resizing as oneDNN does it.
func resizeRules() []*onednn.Rule {
	text := "float32, static shapes, NCHW or NHWC, nearest by whole factors, or bilinear with half pixels"
	var all []*onednn.Rule
	for _, op := range []string{"nn.upsampling", "image.resize2d"} {
		all = append(all, onednn.Bare(op, nil, func(g *relay.Graph, m *relay.Match) error {
			_, err := readResize(g, m)
			return err
		}, text, func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) { return readResize(g, m) }))
	}
	return all
}

func readResize(g *relay.Graph, m *relay.Match) (*resize, error) {
	c, err := onednn.CheckedCall(g, m.Root, "argument")
	if err != nil {
		return nil, err
	}
	n := c.Node
	r := &resize{data: n.Inputs[0]}
	r.layout, _ = n.Attrs.String("layout")
	if r.layout != "NCHW" && r.layout != "NHWC" || len(c.In[0].Shape) != 4 {
		return nil, fmt.Errorf("%s has data in %q; only NCHW and NHWC are supported", n.Op, r.layout)
	}
	method, _ := n.Attrs.String("method")
	switch method {
	case "nearest_neighbor", "nearest":
		r.method = "nearest"
	case "linear", "bilinear":
		r.method = "bilinear"
	default:
		return nil, fmt.Errorf("%s has the method %q; only nearest and linear are supported", n.Op, method)
	}
	mode, _ := n.Attrs.String("coordinate_transformation_mode")
	if r.method == "nearest" {
		// oneDNN takes the pixel whose centre is nearest, which for whole factors is the same.
		return r, onednn.NearestByWholeFactors(c)
	}
	if n.Op != "image.resize2d" || mode != "half_pixel" {
		return nil, fmt.Errorf("%s is linear in another way than with half pixels, which is oneDNN's", n.Op)
	}
	return r, nil
}
