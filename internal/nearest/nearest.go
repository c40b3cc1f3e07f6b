// SPDX-License-Identifier: Apache-2.0

// Package nearest finds what a user probably meant: in comes a word that is not known and the words that are,
// out goes the known one that is closest, or nothing where none is close.
package nearest

import "strings"

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
		if d := distance(word, k); best == "" || d < least {
			best, least = k, d
		}
	}
	if 2*least >= max(len(word), len(best)) {
		return ""
	}
	return best
}

// distance counts the least insertions, deletions, replacements and swaps of neighbours that turn a into b (optimal
// string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
