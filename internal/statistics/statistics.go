// SPDX-License-Identifier: Apache-2.0

// Package statistics is the one place for medians, quantiles, intervals and sign tests of what was timed. Times are
// skewed and have outliers, so nothing here assumes a distribution: intervals are order statistics or drawn anew.
//
// What comes in: samples, in any order. What goes out: numbers; NaN where there are no samples.
package statistics

import (
	"math"
	"slices"
)

// Median is the middle of the values, or the mean of the two in the middle; NaN of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile interpolates between the order statistics, as NumPy does by default; NaN of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	position := q * float64(len(sorted)-1)
	low := int(position)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (position-float64(low))*(sorted[low+1]-sorted[low])
}

// QuantileInterval encloses the q-quantile of what the values are drawn from with the given confidence: its ends are
// order statistics, chosen by the binomial distribution of how many of n samples fall under the quantile. Where there
// are too few values for an end, the end is the least or the greatest of them. NaN of none.
func QuantileInterval(values []float64, q, confidence float64) (low, high float64) {
	n := len(values)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	tail := (1 - confidence) / 2
	lowRank, highRank := 0, n-1
	below := 0.0 // P(at most k samples lie under the quantile)
	for k := range n {
		p := binomial(n, k, q)
		if below+p <= tail {
			// At most k samples lie under the quantile with so small a probability that rank k+1 is still a low end.
			lowRank = k
		}
		below += p
		if 1-below <= tail {
			highRank = k
			break
		}
	}
	return sorted[lowRank], sorted[highRank]
}

// binomial is the probability of exactly k successes in n trials.
func binomial(n, k int, p float64) float64 {
	logFactorial := func(i int) float64 {
		v, _ := math.Lgamma(float64(i) + 1)
		return v
	}
	return math.Exp(logFactorial(n) - logFactorial(k) - logFactorial(n-k) +
		float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

// SignTest is the probability that of n fair coins at most k fall on either one of the two sides.
func SignTest(k, n int) float64 {
	if n == 0 {
		return 1
	}
	sum, term := 0.0, math.Pow(0.5, float64(n))
	for i := 0; i <= k; i++ {
		sum += term
		term *= float64(n-i) / float64(i+1)
	}
	return min(1, 2*sum)
}

// Signs counts in how many places a's value is below b's and above it; what is equal counts for neither (SignTest).
func Signs(a, b []float64) (below, above int) {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] < b[i]:
			below++
		case a[i] > b[i]:
			above++
		}
	}
	return below, above
}

// Ratios are a's values divided by b's, one by one, in their order; as many as both have.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
