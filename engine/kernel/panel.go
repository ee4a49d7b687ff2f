package kernel

// integerPanel is a block of unpacked weight rows, first row after row, then with the rows side by side in the lanes of
// vectors.
type integerPanel struct {
	codes     []int8   // [rows][depth]
	side      []uint32 // [rows][words]: records of scales
	laneCodes []int8   // [depth/4][rows][4]
	laneSide  []uint32 // [words][rows]
}
