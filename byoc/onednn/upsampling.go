// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// roleUpsampled is the call that makes the large tensor.
const roleUpsampled = "upsampled"

// operand is the pattern of what a convolution reads.
func (c convolution) operand() relay.Pattern {
	data := relay.Named(roleData, relay.Wildcard())
	if !c.upsampled {
		return data
	}
	return relay.Named(roleUpsampled, relay.Or(relay.Op("nn.upsampling", data), relay.Op("image.resize2d", data)))
}

// checkUpsampled is the limits of a convolution of what an upsampling makes; each by itself has passed all others.
func (c convolution) checkUpsampled(g *relay.Graph, m *relay.Match, conv *Call) error {
	for _, name := range []string{"strides", "dilation"} {
		if list, _ := spatial(conv.Node, name, c.dims); !slices.Equal(list, repeat(1, c.dims)) {
			return fmt.Errorf("a convolution is joined with the upsampling before it only with %s of 1, this one has %s", name,
				relay.ShapeText(list))
		}
	}
	if groups, _ := conv.Node.Attrs.Int("groups"); groups != 1 {
		return fmt.Errorf("a convolution is joined with the upsampling before it only without groups, this one has %d",
			groups)
	}
	scale, err := c.scale(g, m)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(scale, func(s int64) bool { return s > 1 }) {
		return fmt.Errorf("%s does not enlarge its argument", g.Nodes[m.Named[roleUpsampled]].Op)
	}
	return nil
}

// maxScale is the greatest factor that is offered: the runtime keeps sums for each column of a pixel.
const maxScale = 16

// scale is how often each pixel is repeated along each spatial axis.
func (c convolution) scale(g *relay.Graph, m *relay.Match) ([]int64, error) {
	up, err := CheckedCall(g, m.Named[roleUpsampled], roleData)
	if err != nil {
		return nil, err
	}
	if len(up.In) != 1 || len(up.In[0].Shape) != 4 {
		return nil, fmt.Errorf("%s has an argument of other than 4 dimensions", up.Node.Op)
	}
	layout, _ := up.Node.Attrs.String("layout")
	if data, _ := g.Nodes[m.Named[roleAnchor]].Attrs.String("data_layout"); layout != data {
		return nil, fmt.Errorf("%s has data in %q, the convolution behind it in %q; they must be equal", up.Node.Op,
			layout, data)
	}
	if err := NearestByWholeFactors(up); err != nil {
		return nil, err
	}
	var scale []int64
	for i, letter := range layout {
		if letter == 'H' || letter == 'W' {
			scale = append(scale, up.Out.Shape[i]/up.In[0].Shape[i])
		}
	}
	if len(scale) != 2 || max(scale[0], scale[1]) > maxScale {
		return nil, fmt.Errorf("%s enlarges by %s; at most %d is supported", up.Node.Op, relay.ShapeText(scale),
			maxScale)
	}
	return scale, nil
}

// NearestByWholeFactors makes sure that a call of nn.upsampling or image.resize2d, whose types have been checked,
// repeats each number of its argument equally often along an axis.
func NearestByWholeFactors(c *Call) error {
	n := c.Node
	if method, _ := n.Attrs.String("method"); method != "nearest_neighbor" && method != "nearest" {
		return fmt.Errorf("%s has the method %q, which is not that of nearest neighbours", n.Op, method)
	}
	whole := len(c.In[0].Shape) == len(c.Out.Shape)
	for i := range c.Out.Shape {
		whole = whole && c.Out.Shape[i]%c.In[0].Shape[i] == 0
	}
	// For whole factors, counting from corners and rounding down (nn.upsampling) and counting from centres and rounding
	// to the nearest are the same.
	mode, _ := n.Attrs.String("coordinate_transformation_mode")
	rounding, _ := n.Attrs.String("rounding_method")
	down := mode == "asymmetric" && (rounding == "floor" || rounding == "")
	nearest := mode == "half_pixel" && strings.HasPrefix(rounding, "round")
	if !whole || n.Op == "image.resize2d" && !down && !nearest {
		return fmt.Errorf("%s takes pixels otherwise than oneDNN, by factors that are not whole or rounded (%s, %s)",
			n.Op, mode, rounding)
	}
	return nil
}
