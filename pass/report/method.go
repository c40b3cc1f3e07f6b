// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
)

// methodText says on lines of their own how scales of bytes were made, how far off the outputs were by the methods that
// were compared for it, and whether biases are corrected; "" where nothing of that was done.
func methodText(p *plan.Precision) string {
	if p.Method == "" {
		return biasesText(p)
	}
	text := "\nscales of bytes by " + p.Method
	if len(p.Methods) == 0 {
		return text + biasesText(p)
	}
	var tried []string
	for _, m := range p.Methods {
		tried = append(tried, fmt.Sprintf("%s %.3g", m.Method, m.Error))
	}
	return text + fmt.Sprintf(", on %d inputs the best of: %s", p.Compared, strings.Join(tried, ", ")) + biasesText(p)
}

// biasesText says on a line of its own what came of correcting biases; "" where that was not tried.
func biasesText(p *plan.Precision) string {
	b := p.Biases
	switch {
	case b == nil:
		return ""
	case b.With == nil || b.Without == nil:
		return "\nbiases corrected"
	case b.Corrected:
		return fmt.Sprintf("\nbiases corrected: the outputs of a network were off by %.3g with that, %.3g without", *b.With,
			*b.Without)
	}
	return fmt.Sprintf("\nbiases as they are: the outputs of a network were off by %.3g without correction, %.3g with it",
		*b.Without, *b.With)
}
