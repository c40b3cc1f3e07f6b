// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/internal/statistics"
)

// withoutNative is the column that says what a network takes where nothing is native's.
const withoutNative = "dnnl alone"

// NoUse is a network on which the kernels of native are of no use.
type NoUse struct {
	Network string `json:"network"`
	// ToOurs is oneDNN alone's time to what Collage kept, where operators of native stand in that: its interval is not
	// above 1. Without it nothing of native was kept.
	ToOurs statistics.Ratio `json:"to_ours,omitzero"`
}

// noUse are the networks on which nothing of native was kept, or what was kept is not faster than oneDNN alone beyond
// doubt of the measurement. Empty for none; nil where oneDNN alone was not run.
func (r *NetworkReport) noUse() []NoUse {
	if r.peer(withoutNative) == nil {
		return nil
	}
	list := []NoUse{}
	for i := range r.Networks {
		n := &r.Networks[i]
		cell := n.cell(withoutNative)
		switch known := n.Chosen != "" || len(n.Shares) > 0; {
		case n.Failure != "":
		case known && n.Chosen != native.Name && n.Shares[native.Name] == 0:
			list = append(list, NoUse{Network: n.Name})
		case cell != nil && !cell.Wrong && cell.Ratio.Low <= 1:
			list = append(list, NoUse{n.Name, cell.Ratio})
		}
	}
	return list
}

// noUseText says it in a line; "" for nil.
func noUseText(list []NoUse) string {
	if list == nil {
		return ""
	}
	var names []string
	for _, n := range list {
		why := "nothing of it was kept"
		if n.ToOurs.Median > 0 {
			why = fmt.Sprintf("%s to ours %.2f [%.2f, %.2f]", withoutNative, n.ToOurs.Median, n.ToOurs.Low, n.ToOurs.High)
		}
		names = append(names, fmt.Sprintf("%s (%s)", n.Network, why))
	}
	return fmt.Sprintf("%s is of no use (not kept, or not faster than %s) on: %s\n", native.Name, withoutNative,
		orNone(names))
}
