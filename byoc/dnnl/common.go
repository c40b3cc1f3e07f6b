// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
)

// share does equal computations once: an operation that is equal to an earlier one in all but its result goes, and what
// read its result reads the earlier one's. Before fuse, which would give equal operations different post-operations.
func (l *lowering) share() {
	seen := map[string]*operation{}
	same := map[region.ValueID]region.ValueID{}
	renamed := func(v region.ValueID) region.ValueID {
		if first, ok := same[v]; ok {
			return first
		}
		return v
	}
	var kept []*operation
	for _, o := range l.ops {
		for i, v := range o.in {
			o.in[i] = renamed(v)
		}
		for i, v := range o.arguments {
			o.arguments[i] = renamed(v)
		}
		for i := range o.post {
			o.post[i].operand = renamed(o.post[i].operand)
		}
		if o.kind == "binary" && o.algorithm == "add" && o.in[0] == o.in[1] {
			// Twice the same, as it may turn out here: a function of one argument, which can be fused.
			*o = operation{kind: "eltwise", kernel: o.kernel, algorithm: "linear", alpha: 2, in: o.in[:1], out: o.out,
				of: o.of}
		}
		key := l.computation(o)
		first, ok := seen[key]
		switch {
		case !ok:
			seen[key] = o
		case !slices.Contains(l.p.Outputs, o.out): // a result of the region has a tensor of its own
			same[o.out] = first.out
			first.of = union(first.of, o.of)
			continue
		}
		kept = append(kept, o)
	}
	l.ops = kept
}

// computation is a text that two operations share if and only if they compute the same: all fields but the result, and
// the result's type, which a reshape's attributes do not say.
func (l *lowering) computation(o *operation) string {
	c := *o
	c.out, c.of = noValue, nil
	return fmt.Sprintf("%+v %v %s", c, l.types[o.out].Shape, l.types[o.out].DType)
}
