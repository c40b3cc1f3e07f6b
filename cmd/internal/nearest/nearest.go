// SPDX-License-Identifier: Apache-2.0

// Package nearest finds what a user probably meant: in comes a word that is not known and the words that are,
// out goes the known one that is closest, or nothing where none is close.
package nearest

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// Word is the known word that the fewest changed letters lead to, the first in order among equals; "" where
// that would change half of the word or more. A unique known word that begins with the given one comes first.
func Word(word string, known []string) string {
	word = strings.ToLower(strings.TrimSpace(word))
	if word == "" {
		return ""
	}
	begins := ""
	for _, k := range known {
		if strings.HasPrefix(k, word) {
			if begins != "" {
				begins = ""
				break
			}
			begins = k
		}
	}
	if begins != "" {
		return begins
	}
	best, least := "", 0
	for _, k := range known {
		if d := levenshtein.ComputeDistance(word, k); best == "" || d < least {
			best, least = k, d
		}
	}
	if 2*least >= max(len(word), len(best)) {
		return ""
	}
	return best
}
