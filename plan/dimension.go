package plan

import (
	"slices"
	"strconv"
)

// Dimension names a property that tables can be laid out by.
const (
	DimModel     = "model"
	DimFormat    = "format"
	DimMask      = "mask"
	DimKV        = "kv"  // KVName of the arm's cache types
	DimArm       = "arm" // Arm.Name
	DimStage     = "stage"
	DimCondition = "condition" // Condition.Name
	DimPrompt    = "prompt"
	DimGenerate  = "generate"
	DimDepth     = "depth"
	DimContext   = "context"
	DimMetric    = "metric" // of a table whose cells show several
)

// Dimensions lists all dimensions: those of arms, those of conditions, the metric.
func Dimensions() []string { return append(UnitDimensions(), DimMetric) }

// UnitDimensions lists the dimensions that units have: those of arms, then those of conditions.
func UnitDimensions() []string {
	return append(ArmDimensions(), DimStage, DimCondition, DimPrompt, DimGenerate, DimDepth, DimContext)
}

// ArmDimensions lists the dimensions of arms.
func ArmDimensions() []string { return []string{DimModel, DimFormat, DimMask, DimKV, DimArm} }

// OfArm tells whether a dimension is one of arms.
func OfArm(dimension string) bool { return slices.Contains(ArmDimensions(), dimension) }

// Value is the arm's value of a dimension of arms. It panics on any other.
func (a Arm) Value(dimension string) string {
	switch dimension {
	case DimModel:
		return a.Model
	case DimFormat:
		return a.Format
	case DimMask:
		return a.Mask.Name
	case DimKV:
		return a.KV()
	case DimArm:
		return a.Name
	}
	panic("plan: arms have no dimension " + dimension)
}

// Value is the condition's value of a dimension of conditions. has is false where its stage knows no such dimension, or
// has none of it: a generation has no prompt.
func (c Condition) Value(dimension string) (value string, has bool) {
	switch dimension {
	case DimStage:
		return c.Stage, true
	case DimCondition:
		return c.Name, true
	case DimPrompt:
		return strconv.Itoa(c.Prompt), c.Prompt > 0
	case DimGenerate:
		return strconv.Itoa(c.Generate), c.Generate > 0
	case DimDepth:
		return strconv.Itoa(c.Depth), c.Stage == Depth
	case DimContext:
		return strconv.Itoa(c.Context), c.Context > 0
	}
	return "", false
}

// KVName is how a pair of cache types is written: "f16" when both are the same, "q8_0/f16" (K first) otherwise.
func KVName(typeK, typeV string) string {
	if typeK == typeV {
		return typeK
	}
	return typeK + "/" + typeV
}

// KV is the arm's pair of cache types as KVName writes it.
func (a Arm) KV() string { return KVName(a.TypeK, a.TypeV) }
