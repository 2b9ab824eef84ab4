"""TensorFlow's operations by what they do. One that is in no table is known by its arrays alone."""

from kernels.networks.operations import Direction


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: They compute nothing and move nothing: another shape or name of the same bytes, a handle, a number about a shape.
VIEWS = _names("""
    Assert AssignVariableOp BroadcastGradientArgs BroadcastArgs CheckNumerics ConcatOffset EmptyTensorList EnsureShape ExpandDims
    Identity IdentityN InvertPermutation LoopCond NoOp Placeholder PlaceholderWithDefault PreventGradient Rank ReadVariableOp
    Reshape Shape ShapeN Size Squeeze StopGradient TensorListElementShape TensorListLength TensorListPopBack TensorListPushBack
    TensorListReserve TensorShape VarHandleOp VarIsInitializedOp VariableShape Bitcast
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
    """)
#: They copy, select or repeat numbers.
MOVEMENTS = _names("""
    BatchToSpaceND BroadcastTo Concat ConcatV2 DepthToSpace Diag DiagPart DynamicStitch Fill MatrixDiag MatrixDiagV2 MatrixDiagV3
    MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixBandPart MirrorPad MirrorPadGrad OneHot OnesLike Pack Pad PadV2 Range
    Reverse ReverseV2 ReverseSequence Roll Slice SpaceToBatchND SpaceToDepth Split SplitV StridedSlice StridedSliceGrad
    TensorListConcatV2 TensorListFromTensor TensorListGetItem TensorListSetItem TensorListStack TensorStridedSliceUpdate Tile
    Transpose ConjugateTranspose Unpack ZerosLike ExtractImagePatches ExtractVolumePatches
    """)
#: Of an array they read as much as they write.
TAKE_A_PART = _names("""
    Slice Split SplitV StridedSlice TensorListGetItem TensorListStack TensorListSetItem Unpack DiagPart
    MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 TensorListConcatV2
""")
REDUCTIONS = _names("""
    All Any ArgMax ArgMin BiasAddGrad Cumprod Cumsum CumulativeLogsumexp EuclideanNorm L2Loss Max Mean Min Prod Sum
    """)
GATHERS = _names("""
    Gather GatherV2 GatherNd ResourceGather ResourceGatherNd BatchGather
""")
#: They add numbers, or put them, where whole numbers say.
SCATTERS = _names("""
    Bincount DenseBincount ResourceScatterAdd ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd
    ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate ScatterNd SegmentMax SegmentMean
    SegmentMin SegmentProd SegmentSum SegmentSumV2 SegmentMaxV2 TensorScatterAdd TensorScatterMax TensorScatterMin
    TensorScatterSub TensorScatterUpdate UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
    """)
#: One pass over their arrays, element by element.
ELEMENT_WISE = _names("""
    Abs Acos Acosh Add AddN AddV2 Angle ApproximateEqual Asin Asinh AssignAddVariableOp AssignSubVariableOp Atan Atan2 Atanh
    Betainc BiasAdd BiasAddV1 BitwiseAnd BitwiseOr BitwiseXor Cast Ceil ClipByValue Complex ComplexAbs Conj Cos Cosh Digamma Div
    DivNoNan Elu EluGrad Equal Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Igamma Igammac Imag
    Inv InvGrad IsFinite IsInf IsNan LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot
    LogicalOr LogSoftmax Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual OnesLike Pow Real RealDiv Reciprocal
    ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad RightShift Rint Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid
    SigmoidGrad Sign Sin Sinh Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
    SparseSoftmaxCrossEntropyWithLogits Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv TruncateMod
    Xdivy Xlogy Xlog1py Zeta Where
    RandomStandardNormal RandomUniform RandomUniformInt StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform
    StatelessRandomUniformV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformFullInt
    StatelessRandomUniformFullIntV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 TruncatedNormal
    ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad ResizeBicubic ResizeBicubicGrad
    ImageProjectiveTransformV3 ImageProjectiveTransformV2 AdjustContrastv2 AdjustHue AdjustSaturation HSVToRGB RGBToHSV
    CropAndResize ScaleAndTranslate ScaleAndTranslateGrad InTopKV2
    """)
POOLS = _names("""
    MaxPool MaxPoolV2 AvgPool MaxPool3D AvgPool3D MaxPoolWithArgmax
""")
POOL_GRADIENTS = _names("""
    MaxPoolGrad MaxPoolGradV2 AvgPoolGrad MaxPool3DGrad AvgPool3DGrad MaxPoolGradWithArgmax MaxPoolGradGrad
""")
NORMALIZATIONS = {
    "FusedBatchNorm": "batchnorm",
    "FusedBatchNormV2": "batchnorm",
    "FusedBatchNormV3": "batchnorm",
    "FusedBatchNormGrad": "batchnorm_grad",
    "FusedBatchNormGradV2": "batchnorm_grad",
    "FusedBatchNormGradV3": "batchnorm_grad",
}
TRANSFORMS = _names("""
    FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND
""")
REAL_TRANSFORMS = _names("""
    RFFT RFFT2D RFFT3D RFFTND IRFFT IRFFT2D IRFFT3D IRFFTND
""")
#: They run on the host, whatever the device: lookups, text, Python, files and the input pipeline.
HOST = _names("""
    AsString DecodeImage DecodeJpeg DecodePng DecodeRaw EagerPyFunc FusedPadConv2D IteratorGetNext LookupTableFindV2
    LookupTableInsertV2 LookupTableSizeV2 LookupTableExportV2 LookupTableImportV2 MutableHashTableV2 HashTableV2 OptionalFromValue
    OptionalGetValue ParseExampleV2 PrintV2 PyFunc PyFuncStateless ReadFile RegexFullMatch RegexReplace StaticRegexReplace
    StringFormat StringJoin StringLength StringLower StringSplitV2 StringStrip StringToHashBucketFast StringToNumber StringUpper
    Substr Timestamp UnicodeDecode UnicodeEncode UnicodeScript WriteSummary WriteScalarSummary
    """)
CONVOLUTIONS: dict[str, Direction] = {
    "Conv2D": "fprop",
    "Conv2DBackpropInput": "dgrad",
    "Conv2DBackpropFilter": "wgrad",
    "Conv3D": "fprop",
    "Conv3DBackpropInputV2": "dgrad",
    "Conv3DBackpropFilterV2": "wgrad",
    "DepthwiseConv2dNative": "fprop",
    "DepthwiseConv2dNativeBackpropInput": "dgrad",
    "DepthwiseConv2dNativeBackpropFilter": "wgrad",
}
PRODUCTS = _names("""
    MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3
""")
