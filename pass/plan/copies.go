// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/collage-tvm/collage/relay"
)

// Copies are what one call of a region copies between the processor's memory and that of the device that it runs on.
type Copies struct {
	// ToDevice and FromDevice are how many tensors there are, and ToBytes and FromBytes what they take together.
	ToDevice   int   `json:"to_device"`
	ToBytes    int64 `json:"to_bytes"`
	FromDevice int   `json:"from_device"`
	FromBytes  int64 `json:"from_bytes"`
}

// copiesOf are those of a region that covers these nodes: each value that it reads once, and each that others read of
// it, once. Weights are copied when the model is loaded.
func copiesOf(g *relay.Graph, nodes []relay.NodeID) *Copies {
	inputs, _ := g.Boundary(nodes)
	c := &Copies{}
	c.ToDevice, c.ToBytes = tensors(g, inputs)
	c.FromDevice, c.FromBytes = tensors(g, g.Exits(nodes))
	return c
}

// tensors are how many tensors values are, and their bytes.
func tensors(g *relay.Graph, values []relay.NodeID) (count int, bytes int64) {
	var add func(t *relay.Type)
	add = func(t *relay.Type) {
		if t == nil {
			return
		}
		if t.Kind == relay.TypeTuple {
			for _, field := range t.Fields {
				add(field)
			}
			return
		}
		size, _ := t.NumBytes()
		count, bytes = count+1, bytes+size
	}
	for _, v := range values {
		add(g.Nodes[v].Type)
	}
	return count, bytes
}

// Copies are what one call of the network copies to and from devices, by the kind of device.
func (p *Plan) Copies() map[string]Copies {
	all := map[string]Copies{}
	for i := range p.Regions {
		r := &p.Regions[i]
		if r.Copies == nil {
			continue
		}
		sum := all[p.deviceOf(r)]
		sum.ToDevice, sum.ToBytes = sum.ToDevice+r.Copies.ToDevice, sum.ToBytes+r.Copies.ToBytes
		sum.FromDevice, sum.FromBytes = sum.FromDevice+r.Copies.FromDevice, sum.FromBytes+r.Copies.FromBytes
		all[p.deviceOf(r)] = sum
	}
	return all
}

// deviceOf is the kind of device that a region runs on; "" for the processor.
func (p *Plan) deviceOf(r *Region) string {
	if b := p.Backend(r.BackendOf(&r.Candidates[0])); b != nil {
		return b.Device
	}
	return ""
}
