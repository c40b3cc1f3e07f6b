// SPDX-License-Identifier: Apache-2.0

package rounding

import "math"

const (
	// levels is how many numbers a byte has.
	levels = most + 1
	// reachesTried is between how many reaches the least divergent is looked for.
	reachesTried = 256
)

// leastDivergent are the ends of the reach whose rounded distribution diverges the least from the numbers' own
// (Kullback, Leibler 1951), as Migacz's "8-bit inference with TensorRT" (2017) has it: what is beyond a reach is added
// to its outermost part, what is within is put together to as many levels as there are bytes, and spread again evenly
// over those parts of a level that have numbers. Reaches are cut by the same at both ends of 0; what does not reach
// that far at one end is whole there. Of those that diverge equally it is the longest.
func (s *Seen) leastDivergent() (low, high float64) {
	n := len(s.Counts)
	width := (s.High - s.Low) / float64(n)
	if !(width > 0) {
		return s.Low, s.High
	}
	zero := -s.Low / width // where 0 lies, in parts
	longest := max(zero, float64(n)-zero)
	first, last, least := 0, n, math.Inf(1)
	for i := range reachesTried {
		reach := longest * (1 - float64(i)/reachesTried)
		from, to := max(0, int(math.Floor(zero-reach))), min(n, int(math.Ceil(zero+reach)))
		if i > 0 && to-from < levels {
			break
		}
		if d := s.divergence(from, to); d < least*(1-1e-9) {
			first, last, least = from, to, d
		}
	}
	return s.ends(first, last)
}

// divergence is by how much the distribution of the numbers diverges that parts first to last (left out) can tell
// apart as bytes; infinity where they lose numbers altogether.
func (s *Seen) divergence(first, last int) float64 {
	within := s.Counts[first:last]
	below, above, total := int64(0), int64(0), int64(0)
	for i, count := range s.Counts {
		total += count
		if i < first {
			below += count
		} else if i >= last {
			above += count
		}
	}
	inside := total - below - above
	if inside == 0 {
		if total == 0 {
			return 0
		}
		return math.Inf(1)
	}
	sum := 0.0
	for level, at := 0, 0; at < len(within); level++ {
		begin, count, some := at, int64(0), 0
		for ; at < len(within) && at*levels/len(within) == level; at++ {
			if count += within[at]; within[at] > 0 {
				some++
			}
		}
		for i := begin; i < at; i++ {
			own := within[i]
			if i == 0 {
				own += below
			}
			if i == len(within)-1 {
				own += above
			}
			switch {
			case own == 0:
			case within[i] == 0:
				return math.Inf(1)
			default:
				p := float64(own) / float64(total)
				q := float64(count) / float64(some) / float64(inside)
				sum += p * math.Log(p/q)
			}
		}
	}
	return max(0, sum)
}
