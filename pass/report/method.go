// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
)

// methodText says on a line of its own how scales of bytes were made, and how far off the outputs were by the methods
// that were compared for it; "" where none were made.
func methodText(p *plan.Precision) string {
	if p.Method == "" {
		return ""
	}
	text := "\nscales of bytes by " + p.Method
	if len(p.Methods) == 0 {
		return text
	}
	var tried []string
	for _, m := range p.Methods {
		tried = append(tried, fmt.Sprintf("%s %.3g", m.Method, m.Error))
	}
	return text + fmt.Sprintf(", on %d inputs the best of: %s", p.Compared, strings.Join(tried, ", "))
}
