package summary

import (
	"strconv"

	"attnbudget/plan"
)

// ofArm tells whether a dimension is one of arms; the others are of conditions.
func ofArm(dimension string) bool {
	switch dimension {
	case plan.DimModel, plan.DimFormat, plan.DimMask, plan.DimKV, plan.DimArm:
		return true
	}
	return false
}

func armValue(a plan.Arm, dimension string) string {
	switch dimension {
	case plan.DimModel:
		return a.Model
	case plan.DimFormat:
		return a.Format
	case plan.DimMask:
		return a.Mask.Name
	case plan.DimKV:
		return a.KV()
	}
	return a.Name
}

// conditionValue is the value of a dimension of conditions. has is false where the condition's stage knows no such
// dimension, or has none of it: a generation has no prompt.
func conditionValue(c plan.Condition, dimension string) (value string, has bool) {
	switch dimension {
	case plan.DimStage:
		return c.Stage, true
	case plan.DimCondition:
		return c.Name, true
	case plan.DimPrompt:
		return strconv.Itoa(c.Prompt), c.Prompt > 0
	case plan.DimGenerate:
		return strconv.Itoa(c.Generate), c.Generate > 0
	case plan.DimDepth:
		return strconv.Itoa(c.Depth), c.Stage == plan.Depth
	case plan.DimContext:
		return strconv.Itoa(c.Context), c.Context > 0
	}
	return "", false
}

func dimensionValue(a plan.Arm, c plan.Condition, dimension string) (value string, has bool) {
	if ofArm(dimension) {
		return armValue(a, dimension), true
	}
	return conditionValue(c, dimension)
}
