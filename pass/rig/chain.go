// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
)

// LongChain is a function of 42 operators, one after the other; the library takes the tanh in the middle.
func LongChain() string {
	var text strings.Builder
	text.WriteString("def @main(%x: Tensor[(4, 32), float32]) {\n")
	last := "%x"
	for i := range 41 {
		op := "exp"
		if i == 20 {
			op = "tanh"
		}
		fmt.Fprintf(&text, "  %%%d = %s(%s);\n", i, op, last)
		last = fmt.Sprintf("%%%d", i)
	}
	fmt.Fprintf(&text, "  sqrt(%s)\n}", last)
	return text.String()
}

// DearTogether is what computations of LongChain cost: a kernel of TVM's 1 ms whatever is in it, but for the one with
// everything in it, which is dearer than one by one.
func DearTogether(r cost.Request) cost.Cost {
	switch {
	case r.Key.Backend == "lib":
		return cost.FromMilliseconds(0.1)
	case len(r.Candidate.Nodes) == 42:
		return cost.FromMilliseconds(50)
	}
	return cost.FromMilliseconds(1)
}
