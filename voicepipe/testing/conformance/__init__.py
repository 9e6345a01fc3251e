"""The requirements of the ports, one suite each, for every provider and every fake. Needs pytest and pytest-asyncio.

Subclass a suite in a test file, and give it its fixtures:

    class TestMyModel(ModelConformance):
        @pytest.fixture
        async def model(self): ...

Suites whose name begins with `Scripted` test failures too, and need a far side that takes cues.
"""
