// SPDX-License-Identifier: Apache-2.0

package relay

// AxisRange are dimensions from Begin up to End, End not included.
type AxisRange struct{ Begin, End int }

// ReshapeLikeAxes are which dimensions of its data, of so many, a reshape_like with these attributes replaces, and by
// which of the other tensor's. TVM counts from behind where a number is negative, and goes to the last dimension where
// there is no end. ok is false of attributes that name dimensions which are not there.
func ReshapeLikeAxes(attrs *Attrs, dataRank, likeRank int) (data, like AxisRange, ok bool) {
	data, ok = reshapeLikeAxes(attrs, "lhs", dataRank)
	like, ok2 := reshapeLikeAxes(attrs, "rhs", likeRank)
	return data, like, ok && ok2
}

func reshapeLikeAxes(attrs *Attrs, side string, rank int) (AxisRange, bool) {
	begin, ok := attrs.Int(side + "_begin")
	end, given := attrs.Int(side + "_end")
	if !given {
		end = int64(rank)
	}
	if begin < 0 {
		begin += int64(rank)
	}
	if end < 0 {
		end += int64(rank)
	}
	return AxisRange{int(begin), int(end)}, ok && begin >= 0 && begin <= end && end <= int64(rank)
}
