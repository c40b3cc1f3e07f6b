// SPDX-License-Identifier: Apache-2.0

package measure

import "encoding/json"

// Inputs are what a network is given to see how far its outputs are off (cost.Network.Errors).
type Inputs struct {
	// Searched are those by which a search decides what to try next, HeldOut those that it does not see, by which it is
	// decided in the end whether a network may be kept.
	Searched, HeldOut []Input
	// Scales are those on which scales are found beside Searched, as far as there is time: none of them is held out.
	Scales []Input
	// Compared are those on which methods are compared by which scales are made of what was seen, as far as there is time:
	// none of them is held out, and nothing was seen on them where there are others.
	Compared []Input
	// Measure is the user's own, which errors are taken in beside the others; nil for none.
	Measure *OwnMeasure
}

// OwnMeasure is a Python function of the user's that says how far outputs are off (python/collage/error_measure.py).
type OwnMeasure struct {
	// Name is what it is called in cost.Limit and cost.OwnError.
	Name string `json:"name"`
	// File is its file, an absolute path, and Function its name there.
	File     string `json:"file"`
	Function string `json:"function"`
	// Digest tells the file from what it was before: the first digits of its SHA-256.
	Digest string `json:"-"`
}

// Input is what a network is given once: random numbers, or a file.
type Input struct {
	// Seed makes the numbers where File is "".
	Seed int
	// File is an .npz file with an array for each of the network's inputs, an absolute path, and Sample which of those
	// that it holds is meant.
	File   string
	Sample int
}

// MarshalJSON writes the seed, or the file and the sample as a list.
func (i Input) MarshalJSON() ([]byte, error) {
	if i.File != "" {
		return json.Marshal([]any{i.File, i.Sample})
	}
	return json.Marshal(i.Seed)
}

// RandomInputs are so many, of the seeds from first on.
func RandomInputs(first, count int) []Input {
	inputs := make([]Input, count)
	for i := range inputs {
		inputs[i].Seed = first + i
	}
	return inputs
}
